"""Kernels that go through values row by row: elementwise, norms, RoPE, routing, embeddings and adapters."""
