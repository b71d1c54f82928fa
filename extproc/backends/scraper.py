"""Reads engines' metrics pages, all at once and within a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import aiohttp

from extproc.backends.vllm import kv_tokens

_TIMEOUT = aiohttp.ClientTimeout(total=2)
_MAX_BYTES = 4 * 2**20


class Scraper:
    """Asks engines for the size of their KV caches."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def kv_tokens(self, endpoints: Sequence[str]) -> list[int | None]:
        """Return each engine's KV-cache tokens; None for one that does not answer or does not say."""
        return list(await asyncio.gather(*(self._kv_tokens(endpoint) for endpoint in endpoints)))

    async def _kv_tokens(self, endpoint: str) -> int | None:
        try:
            async with self._session.get(f"{endpoint.rstrip('/')}/metrics", timeout=_TIMEOUT) as response:
                if response.status != 200:
                    return None
                page = await response.content.read(_MAX_BYTES)
        except (aiohttp.ClientError, TimeoutError):
            return None
        return kv_tokens(page.decode("utf-8", errors="replace"))
