"""Forebay: admission control for LLM serving, as an Envoy external processor.

Start with `extproc.app` to see how the rooms are wired, or `docs/architecture.md` for the picture.
"""
