"""From logits to a token."""

from llamina.sampling.breakers import BreakerTable
from llamina.sampling.chain import LogitsProcessor, Sampler
from llamina.sampling.logprobs import TokenLogprob, logprob_of
from llamina.sampling.params import Sampling

__all__ = ["BreakerTable", "LogitsProcessor", "Sampler", "Sampling", "TokenLogprob", "logprob_of"]
