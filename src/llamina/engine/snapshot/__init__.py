"""Sequences and conversations as bytes, to be resumed later or elsewhere."""
