"""Sampling: from logits to a token, by stages that a request's parameters switch on."""

from llamina.sampling.bad_words import word_tokens
from llamina.sampling.chain import LogitsProcessor, Sampler
from llamina.sampling.logprobs import TokenLogprob, logprob_of
from llamina.sampling.params import Sampling
from llamina.sampling.penalties import BreakerTable

__all__ = ["BreakerTable", "LogitsProcessor", "Sampler", "Sampling", "TokenLogprob", "logprob_of", "word_tokens"]
