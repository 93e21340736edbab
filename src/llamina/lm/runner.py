"""A plan made runnable: compiled by a backend, with pages for the KV caches of a few sequences."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from llamina.backends import Capacity, KvType, Program, backend
from llamina.cache import Pages
from llamina.errors import CapacityError, ContextTooLong, RequestError
from llamina.lm.kv_cache import F32, PastKvCache
from llamina.ops.batch import PAGE, Batch, Span
from llamina.plan import Plan

STEP = 128  # tokens of one step; longer inputs take several
KV_TYPES = ("f32", "f16", "bf16")


class Runner:
    """Runs a plan for one sequence at a time. The engine does the same for many in one step.

    The plan reads tokens, or rows of numbers if it was recorded with a width. `backend` is auto, reference, cpu or
    cuda, `options` are those of that backend, and `sequences` is how many KV caches there can be at a time.
    """

    def __init__(
        self,
        plan: Plan,
        context: int,
        *,
        backend: str = "auto",
        kv_type: KvType = "f32",
        sequences: int = 4,
        **options: Any,
    ) -> None:
        if kv_type not in KV_TYPES:
            raise RequestError(f"kv_type is {kv_type!r}: it must be {' or '.join(KV_TYPES)}", "kv_type")
        pages = -(-context // PAGE)
        self.plan = plan
        self.context = context
        self.capacity = Capacity(sequences * pages, sequences, kv_type)
        self.pages = Pages(sequences * pages, sequences)
        step = min(STEP, context)
        self._batch = Batch(step, step, 1, pages, plan.rows.size if plan.rows is not None else 0)
        self._backend, self._options = backend, options

    @cached_property
    def program(self) -> Program:
        """The plan, compiled when it is first needed."""
        return backend(self._backend, **self._options).compile(self.plan, self._batch, self.capacity)

    def new_cache(self) -> PastKvCache:
        """An empty KV cache. Raises CapacityError if `sequences` have one."""
        lease = self.pages.admit()
        if lease is None:
            raise CapacityError(f"{self.capacity.slots} sequences have a cache: close one, or allow more")
        return PastKvCache(self, lease)

    def forward(self, inputs: Sequence[int] | npt.ArrayLike, past: PastKvCache | None = None) -> F32:
        """What the plan makes of each token, or of each row: [tokens, outputs].

        The inputs go on where `past` ends, and are in it afterwards. Without it they begin a sequence that nobody
        keeps. Raises RequestError for tokens or rows that the plan cannot read, ContextTooLong if they do not fit.
        """
        given = self._check(inputs)
        if past is None:
            with self.new_cache() as fresh:
                return self.forward(given, fresh)
        if past.runner is not self:
            raise RequestError("the KV cache is that of another model: make one with new_cache()", "past")
        if past.past_len + len(given) > self.context:
            raise ContextTooLong(
                f"{past.past_len} tokens and {len(given)} more do not fit the context of {self.context}", "inputs"
            )
        step = len(self._batch.tokens)
        return np.concatenate([self._step(given[i : i + step], past) for i in range(0, len(given), step)])

    def _step(self, inputs: npt.NDArray[Any], past: PastKvCache) -> F32:
        start, n = past.past_len, len(inputs)
        if not self.pages.extend(past.lease, start, start + n):
            raise CapacityError(f"all {self.pages.total} pages of the KV cache are taken: close a cache")
        for unit, pairs in self.pages.take_copies().items():
            self.program.states.copy(unit, pairs)
        rows = [] if self.plan.rows is None else [(0, inputs)]
        tokens = [0] * n if rows else inputs.tolist()
        span = Span(tokens, start, past.lease.pages, past.lease.slot, range(n), rows=rows)
        outputs = self.program.launch(self._batch.fill([span])).result().copy()  # overwritten by the next launch
        past.past_len += n
        return outputs

    def _check(self, inputs: Sequence[int] | npt.ArrayLike) -> npt.NDArray[Any]:
        """Tokens as integers, or rows as float32."""
        given = np.asarray(inputs)
        if self.plan.rows is not None:
            if given.ndim != 2 or not len(given) or given.shape[1] != self.plan.rows.size:
                raise RequestError(f"inputs are {list(given.shape)}: must be [rows, {self.plan.rows.size}]", "inputs")
            return given.astype(np.float32)
        if given.ndim != 1 or not len(given) or given.dtype.kind not in "iu":
            raise RequestError(f"inputs are {given!r}: they must be one or more tokens", "inputs")
        tables = [s.weights[0] for s in self.plan.steps if s.op == "embed" and s.inputs[0].id == self.plan.tokens.id]
        for table in tables:
            outside = given[(given < 0) | (given >= table.shape[0])]
            if len(outside):
                raise RequestError(f"a token is {outside[0]}: it must be from 0 to {table.shape[0] - 1}", "inputs")
        return given

    def close(self) -> None:
        """End the backend's threads."""
        if "program" in self.__dict__:
            self.program.close()
