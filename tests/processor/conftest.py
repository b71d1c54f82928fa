"""Envoy's own message types, imported once in peace."""

from __future__ import annotations

import asyncio
import warnings

# looptime asks for the current loop before every test, which creates one that nobody closes where a plain
# test comes before the first asynchronous one. With "none" said once, it gets none.
asyncio.set_event_loop(None)

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of pydantic, about the generated classes
    import envoy_data_plane.envoy.service.accesslog.v3
    import envoy_data_plane.envoy.service.ext_proc.v3  # noqa: F401
