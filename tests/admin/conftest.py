"""The HTTP side of a replica."""

from __future__ import annotations

import asyncio

# looptime asks for the current loop before every test, which creates one that nobody closes where a plain
# test comes before the first asynchronous one. With "none" said once, it gets none.
asyncio.set_event_loop(None)
