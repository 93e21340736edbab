"""The kernels, in Triton: matrix products, and everything else that a plan asks for."""
