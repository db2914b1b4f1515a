"""Encryption at rest: what is stored is sealed with a key, and opened again where it is read.

- `sealed_blocks`: the bytes of a sealed block, and the ring of keys that seals and opens them.
- `key_sources`: where keys come from: files, and commands or services that keep them wrapped.
- `unlocking`: from the configuration and the record of a database to its ring.
- `sealed_store`: the database behind a ring; frames of its journal seals `storage.journal.frames`.
- `used_keys`: which keys are still in use; sealing anew what is not sealed with the newest.

What holds, always:

1. Every value of the database is sealed, but for those of `PLAIN_KEYS`, which say what the database is and
   which must be read before there is a key. Keys of records are not: they are what records are found by.
2. A block opens at its place only: the key of its record, or the head of its journal frame, is authenticated
   with it, and its key is derived for this one database.
3. No key seals two blocks with one nonce: every opening derives a key of its own from 14 random bytes, and
   counts its blocks.

Nothing here is imported where no key is configured.
"""
