from __future__ import annotations

import gc
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

from extproc.estimation.count_cache import Count, CountCache


def key(number: int) -> bytes:
    return CountCache.key("cl100k_base", f"text {number}")


def test_what_was_put_is_got_back_for_its_encoding_only():
    cache = CountCache(10)
    cache.put(CountCache.key("cl100k_base", "text"), Count(1, is_exact=True))
    assert cache.get(CountCache.key("cl100k_base", "text")) == Count(1, is_exact=True)
    assert cache.get(CountCache.key("o200k_base", "text")) is None
    assert (cache.hits, cache.misses) == (1, 1)


def test_the_least_recently_used_is_forgotten_first():
    cache = CountCache(2)
    cache.put(key(1), Count(1, is_exact=True))
    cache.put(key(2), Count(2, is_exact=True))
    cache.get(key(1))
    cache.put(key(3), Count(3, is_exact=True))
    assert [cache.get(key(n)) is not None for n in (1, 2, 3)] == [True, False, True]


def test_a_cache_of_nothing_remembers_nothing():
    cache = CountCache(0)
    cache.put(key(1), Count(1, is_exact=True))
    assert len(cache) == 0
    assert cache.get(key(1)) is None


def test_an_entry_takes_few_bytes_however_long_its_text():
    text = "word " * 200_000
    cache = CountCache(10_000)
    tracemalloc.start()
    for number in range(100):
        cache.put(CountCache.key("cl100k_base", f"{number}{text}"), Count(10_000 + number, is_exact=True))
    gc.collect()
    held_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held_bytes / 100 < 500


def test_threads_may_share_it():
    cache = CountCache(50)

    def use(seed: int) -> None:
        for number in range(3_000):
            wanted = key((number * seed) % 100)
            if cache.get(wanted) is None:
                cache.put(wanted, Count(1, is_exact=True))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(use, (1, 3, 7, 11)))
    assert len(cache) <= 50
    assert cache.hits + cache.misses == 4 * 3_000
