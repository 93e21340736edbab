"""The backend for NVIDIA GPUs: Triton kernels, launched through the driver, in graphs that are replayed once a step."""
