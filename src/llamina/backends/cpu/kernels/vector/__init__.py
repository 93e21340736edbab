"""Registers as values, scalars at addresses, and the arithmetic that kernels are made of."""
