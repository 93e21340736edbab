"""Triton kernels. Each reads the number of rows on the device, and programs beyond it end at once."""
