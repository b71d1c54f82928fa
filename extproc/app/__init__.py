"""One replica: every room wired to the others, started, drained and stopped."""

from extproc.app.replica import Replica, serve

__all__ = ["Replica", "serve"]
