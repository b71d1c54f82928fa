"""The use case: hold a request until the cluster has room, and give back what it held, whatever happens.

`service.py` is the story; `ports.py` says what it needs from the outside.
"""
