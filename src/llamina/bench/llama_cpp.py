"""llama.cpp by the C functions of llama-cpp-python: batches go to `llama_decode`, as in llama-bench.

Nothing is sampled, so it does a little less work than llamina in the same task.
"""

import ctypes
import time
from typing import Any

import llama_cpp as c

from llamina.bench.contestant import STEP, Progress, Setup
from llamina.bench.task import Task, Tokens
from llamina.errors import CapacityError, ModelFileError

TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8, "bf16": 30}  # of ggml


class LlamaCpp:
    """A model, and a context for as many sequences as the current task has."""

    def __init__(self, setup: Setup, model: Any) -> None:
        self._setup, self._model = setup, model
        self._batch = c.llama_batch_init(STEP, 0, 1)
        self._context: Any = None
        self._sequences = 0

    def seconds(self, task: Task, seed: int) -> float:
        before, fresh = task.draw(seed, self._setup.vocab)
        self._begin(task.batch)
        self._prompt(before, 0)
        start = time.perf_counter()
        if task.kind != "generate":
            self._prompt(fresh, task.depth)
        if task.kind != "prompt":
            first = task.depth + task.prompt
            for i in range(bool(task.prompt), task.tokens):  # the first comes with the prompt
                self._decode([(tokens[0], first + i, s, True) for s, tokens in enumerate(fresh)])
        c.llama_synchronize(self._context)
        return time.perf_counter() - start

    def _begin(self, sequences: int) -> None:
        """Empty the KV cache. Each sequence has its own part of it, so another number needs another context."""
        if sequences != self._sequences:
            self._free()
            self._context, self._sequences = self._open(sequences), sequences
            self._decode([(0, 0, s, True) for s in range(sequences)])  # touches its buffers
        c.llama_memory_clear(c.llama_get_memory(self._context), False)

    def _open(self, sequences: int) -> Any:
        params, setup = c.llama_context_default_params(), self._setup
        params.n_ctx = sequences * -(-setup.context // 256) * 256  # llama.cpp rounds up to this
        params.n_batch = params.n_ubatch = STEP
        params.n_seq_max = sequences
        params.n_threads = params.n_threads_batch = setup.threads
        params.type_k = params.type_v = TYPES[setup.kv_type]
        if hasattr(params, "flash_attn_type"):
            params.flash_attn_type = -1 if setup.flash else 0  # -1: where it can, which is nearly everywhere
        if not (context := c.llama_init_from_model(self._model, params)):
            raise CapacityError(f"llama.cpp cannot open a context of {params.n_ctx} tokens: measure fewer")
        return context

    def _prompt(self, prompts: Tokens, position: int) -> None:
        last = [len(tokens) - 1 for tokens in prompts]
        rows = [(t, position + i, s, i == last[s]) for s, tokens in enumerate(prompts) for i, t in enumerate(tokens)]
        for start in range(0, len(rows), STEP):
            self._decode(rows[start : start + STEP])

    def _decode(self, rows: list[tuple[int, int, int, bool]]) -> None:
        """One call for rows of (token, position, sequence, whether its logits are wanted). Raises CapacityError."""
        batch = self._batch
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, wanted) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.logits[i] = token, position, wanted
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
        if code := c.llama_decode(self._context, batch):
            raise CapacityError(f"llama_decode gave {code} for {len(rows)} tokens")

    def _free(self) -> None:
        if self._context:
            c.llama_free(self._context)
        self._context = None

    def close(self) -> None:
        self._free()
        c.llama_batch_free(self._batch)
        c.llama_model_free(self._model)


SILENCE = c.llama_log_callback(lambda level, text, data: None)  # kept: C holds its address


def enter(setup: Setup, progress: Progress) -> LlamaCpp:
    """Load the model on the CPU."""
    c.llama_log_set(SILENCE, ctypes.c_void_p(0))
    c.llama_backend_init()
    params = c.llama_model_default_params()
    params.n_gpu_layers = 0
    if hasattr(params, "use_extra_bufts"):
        params.use_extra_bufts = setup.repack
    model = c.llama_model_load_from_file(setup.path.encode(), params)
    if not model:
        raise ModelFileError(f"llama.cpp cannot load {setup.path}")
    return LlamaCpp(setup, model)
