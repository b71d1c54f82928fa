"""Stand-ins for what Forebay protects: engines that behave like vLLM, and whole systems made of them.

The engine (`server.serve_engine`, docs/engine.md) batches, waits, pre-empts and reports without a GPU.
"""
