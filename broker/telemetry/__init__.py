"""Traces: what the broker did with messages whose publishers say that they are traced.

- `trace_context`: the `traceparent` of a message, by W3C Trace Context.
- `spans`: what is to be told, collected in memory.
- `traced`: a client of the core that notes spans; there is none where telemetry is not configured.
- `exporting`: what is noted becomes OpenTelemetry's and goes to a collector, in a thread.
- `telemetry`: these put together.
"""
