"""Backups: every record of a database as of one moment, in files that say what they are.

- `archive`: the bytes of the files and of the index over them.
- `backup_places`: where the files lie: a directory, or an object store.
- `source`: the records of a database, as of a cut.
- `copying`: from a source to a place; `restoring`: from a place into an empty storage.

What holds, always:

1. The index is written last, when all files are where they stay: without it a backup is none.
2. The index has the size and checksum of every file, and its own; whatever differs is refused, by its name.
3. A restored storage gets its format marker last: one that is half restored is refused by every opening.
"""
