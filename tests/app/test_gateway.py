"""The Envoy that belongs to a configuration."""

from __future__ import annotations

import pytest

from extproc import settings as configuration
from extproc.app.gateway import bootstrap_for


@pytest.mark.parametrize(
    ("usages", "reads"),
    [(["access_log"], False), (["off"], False), (["stream"], True), (["off", "stream"], True)],
)
def test_envoy_tells_of_responses_only_where_a_pool_reads_them(usages, reads):
    pools = [{"name": f"pool-{n}", "usage": usage} for n, usage in enumerate(usages)]
    settings = configuration.parse({"pools": pools}, source="here")
    assert bootstrap_for(settings, listen="127.0.0.1:8080", servers=()).reads_responses is reads
