"""llamina as a contestant: requests go through the engine's step, with greedy sampling and detokenizing."""

import time

from llamina.bench.contestant import STEP, Progress, Setup, measured_backend
from llamina.bench.task import Task, Tokens
from llamina.engine import Engine, Request, Sequence, load
from llamina.errors import CapacityError
from llamina.ops.batch import PAGE
from llamina.sampling import Sampling


class Llamina:
    """A loaded engine with a KV cache for every task."""

    def __init__(self, engine: Engine, vocab: int) -> None:
        self._engine = engine
        self._vocab = vocab

    def seconds(self, task: Task, seed: int) -> float:
        before, fresh = task.draw(seed, self._vocab)
        sequences = self._submit(before if task.depth else fresh)
        if task.depth:
            self._fill(sequences, task.depth)
            for sequence, tokens in zip(sequences, fresh, strict=True):
                sequence.known[task.depth :] = tokens  # in place of the one that was sampled after filling
        made = 1 if task.kind == "prompt" else task.tokens
        start = time.perf_counter()
        self._run(sequences, task.depth + len(fresh[0]) + made)
        seconds = time.perf_counter() - start
        for sequence in sequences:
            self._engine.cancel(sequence)
        return seconds

    def _submit(self, prompts: Tokens) -> list[Sequence]:
        greedy = Sampling(temperature=0)
        requests = [Request(tokens, greedy, ignore_eos=True, cache_prompt=False, speculate="off") for tokens in prompts]
        return [self._engine.submit(request) for request in requests]

    def _fill(self, sequences: list[Sequence], depth: int) -> None:
        """Compute all prompts to `depth` tokens; those that are done first wait for the others."""
        while any(len(sequence.known) <= depth for sequence in sequences):
            self._step()
            for sequence in sequences:
                if sequence.computed > depth:
                    del sequence.known[depth + 1 :]
                    sequence.computed = depth

    def _run(self, sequences: list[Sequence], length: int) -> None:
        while any(len(sequence.known) < length for sequence in sequences):
            self._step()

    def _step(self) -> None:
        if not self._engine.step():
            raise CapacityError("the engine has no room for the next step: measure fewer sequences or tokens")

    def close(self) -> None:
        self._engine.close()


def enter(setup: Setup, progress: Progress) -> Llamina:
    """Load the model, with KV cache pages for every sequence at its longest."""
    context = setup.context + 2  # the token after the last, and a context that never is full
    engine = load(
        setup.path,
        backend="cuda" if setup.gpu else measured_backend(),
        threads=None if setup.gpu else setup.threads,
        context=context,
        kv_type=setup.kv_type,
        step_tokens=None if setup.gpu else STEP,  # a GPU takes more of a prompt at once
        max_sequences=setup.sequences,
        cache_tokens=setup.sequences * (context + PAGE),
        progress=progress,
    )
    return Llamina(engine, setup.vocab)
