"""Load on a server with OpenAI's API, ours or another's: how quickly it answers, and how much."""

from llamina.bench.url.measure import Asked, measure_url

__all__ = ["Asked", "measure_url"]
