"""AMQP 1.0 (OASIS, 2012), server side.

`connection.Amqp10Connection` is the whole protocol as a state machine; `events` is what it tells the
front-end. `types` is the codec of the type system, `performatives` the frames' bodies and what they hold as
named tuples, `hot` has the paths of transfers and dispositions, `errors` how a peer's mistakes are told.

How a front-end uses it:

- Feed it as any `sans_io_connection.Connection`, and act on the events in order.
- `AuthRequested`, `OpenRequested`: `accept_auth()` and `accept_open()` give further events, of what the
  client sent meanwhile; act on those, too. Or `refuse_auth(reason)`, `challenge(...)`, `fail(condition,
  text)`.
- `SessionBegun` is answered already. `end_session(channel, condition, text)` ends one for an error.
- `AttachRequested`: look at `link.attach` and `link.client_sends`, then `accept_attach(link, source,
  target)` and, where the client sends, `grant(link, credit)`; or `refuse_attach(link, condition, text)`.
  The same `Link` comes with every event of it.
- `TransferRun` holds whole messages; unless `settled`, answer with `settle(channel,
  ranges, state)`, for which `hot.ranges_of` makes ranges of IDs. Then `grant` credit anew.
- `CreditChanged`, `WindowOpened`: send with `deliver(link, payloads)`, up to `link.credit` and
  `session_room`; keep the delivery ID that it gives. Where `link.drain` is set and nothing is left,
  `drained(link)`.
- `DispositionRun` with role RECEIVER settles deliveries by their IDs, in ranges; where it is not `settled`,
  answer with `settle(channel, ranges, state, role=SENDER)`.
- `LinkDetached`, `SessionEnded`, `ConnectionLost`: what belonged to them goes back. Calls for what is gone
  do nothing.
"""
