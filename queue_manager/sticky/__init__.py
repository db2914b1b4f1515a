"""Message groups: all messages of one key go to one consumer at a time, in order."""
