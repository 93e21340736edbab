"""Kernels of the GPU are interpreted in this process: Triton asks once, when it is imported."""

import os

os.environ["TRITON_INTERPRET"] = "1"
