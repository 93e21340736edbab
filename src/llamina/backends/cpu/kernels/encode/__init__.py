"""Quantizing weights: a kernel for each format, whose bytes are ggml's. The lanes of a register are sub-blocks."""
