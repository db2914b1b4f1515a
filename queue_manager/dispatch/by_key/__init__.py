"""Message groups: the messages of one key go to one consumer at a time."""
