"""The fixtures of the end-to-end suite, for tests in which the store itself goes away."""

from e2e.conftest import demo, envoy_is_here, session

__all__ = ["demo", "envoy_is_here", "session"]
