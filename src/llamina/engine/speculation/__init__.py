"""Speculative decoding: several tokens in one step where they can be drafted."""
