"""A matrix times many tokens (GEMM): rows unpacked into tiles that stay in the cache while the tokens pass by."""
