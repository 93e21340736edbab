"""A matrix times many tokens (GEMM) in matrix registers (AMX)."""
