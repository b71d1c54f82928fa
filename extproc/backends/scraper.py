"""Reads what engines say of themselves, all at once and within a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import aiohttp

from extproc.backends import models, vllm

_TIMEOUT = aiohttp.ClientTimeout(total=2)
_MAX_BYTES = 4 * 2**20


class Scraper:
    """Asks engines for their figures, each None for an engine that does not answer or does not say."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def kv_tokens(self, endpoints: Sequence[str]) -> list[int | None]:
        """Return the tokens that each engine's KV cache holds, from its metrics."""
        pages = await self._pages(endpoints, "/metrics")
        return [vllm.kv_tokens(page.decode("utf-8", errors="replace")) for page in pages]

    async def context_tokens(self, endpoints: Sequence[str]) -> list[int | None]:
        """Return each engine's context length in tokens, from its list of models."""
        return [models.context_tokens(page) for page in await self._pages(endpoints, "/v1/models")]

    async def _pages(self, endpoints: Sequence[str], path: str) -> list[bytes]:
        return list(
            await asyncio.gather(*(self._page(endpoint.rstrip("/") + path) for endpoint in endpoints))
        )

    async def _page(self, url: str) -> bytes:
        """Return a page; empty where it is not to be had, or too large to be one."""
        try:
            async with self._session.get(url, timeout=_TIMEOUT) as response:
                if response.status != 200:
                    return b""
                await response.content.readexactly(_MAX_BYTES)
        except asyncio.IncompleteReadError as end:  # `read` would return whatever came first
            return end.partial
        except (aiohttp.ClientError, TimeoutError):
            return b""
        return b""
