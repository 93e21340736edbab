"""A matrix times one token (GEMV): eight rows at a time, read from memory once."""
