"""The journal before a database: a commit is confirmed once it is here, and SlateDB gets it afterwards.

- `frames`: the bytes of segments, frames and the end record.
- `files`: the segment files, written; `journal_survey`: the same at a start, proven whole.
- `appender`: appending within the call or in a thread.
- `waiting_commits`: what is not in SlateDB yet: seen by reads, and which of it is handed over next.
- `handing_over`: handing it over in batches, and having it made durable there; `filling`: making one
  batch; `due` and `background`: when, and in which tasks.
- `early`: what reads see of a large journal that is handed over while the store is in use already.
- `journaled_store`: the `Store` made of these; `opening`: making, taking over, replaying and leaving a
  journal.
- `apart`: of a journal before an object store, which another machine has not got.

What holds, always:

1. SlateDB is never ahead of the journal: a commit is handed over after its frame is on disk.
2. A batch for SlateDB holds whole commits, but for what later commits in the journal replace, and in the same
   batch the sequence number of the last of them. Replay starts behind that number, whatever else SlateDB has
   lost. Who looks at the database meanwhile (a scan, a cut) sees whole commits.
3. A segment is written anew only after SlateDB has flushed all of it, and local files have been fsynced.
4. Frames are written one at a time and follow each other without a gap, each naming the checksum of the one
   before. So only the last can be torn. Anything else that is not whole is damage, and opening is refused.
5. Every opening begins a new segment.
6. An fsync that failed is final for the process: nothing is appended or confirmed behind it.
"""
