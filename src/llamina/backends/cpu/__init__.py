"""The CPU backend: plans as tables of native kernels, walked by a resident team of threads."""
