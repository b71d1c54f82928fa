"""The HTTP surface of the simulated engine, one module a dialect.

Each endpoint is a body (what may be asked) and a reply (how it is answered); `endpoint.py` drives both.
"""
