"""Envoy's own message types, imported once in peace."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of pydantic, about the generated classes
    import envoy_data_plane.envoy.service.accesslog.v3
    import envoy_data_plane.envoy.service.ext_proc.v3  # noqa: F401
