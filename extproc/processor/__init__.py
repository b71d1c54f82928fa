"""The ext_proc and access-log services: one coroutine for each HTTP exchange that Envoy brings.

`exchange.py` is the order of messages, `gate.py` what a request is, `messages.py` the wire,
`servicer.py` gRPC.
"""
