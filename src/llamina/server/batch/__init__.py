"""Batches: many requests in a file, answered when there is time, their answers in another file."""

from llamina.server.batch.batch import cancel_batch, described, find_batch, new_batch
from llamina.server.batch.run import resume_all, run

__all__ = ["cancel_batch", "described", "find_batch", "new_batch", "resume_all", "run"]
