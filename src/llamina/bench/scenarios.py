"""What speeds up serving: prefix caching, grammars, speculative decoding, each compared with going without."""

import time
from collections import abc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from llamina.engine import Engine, Request, Sequence
from llamina.grammar import source
from llamina.grammar.compiler import Compiler
from llamina.sampling import Sampling

Floats = npt.NDArray[np.float32]
CODE = """class Account:
    def __init__(self, owner, balance=0):
        self.owner = owner
        self.balance = balance
        self.history = []

    def deposit(self, amount):
        if amount <= 0:
            raise ValueError("amount must be positive")
        self.balance += amount
        self.history.append(("deposit", amount))
        return self.balance

    def withdraw(self, amount):
        if amount > self.balance:
            raise ValueError("not enough money")
        self.balance -= amount
        self.history.append(("withdraw", amount))
        return self.balance

    def transfer(self, other, amount):
        self.withdraw(amount)
        other.deposit(amount)
        return self.balance, other.balance

    def copy(self):
        return Account(self.owner, self.balance)

    def __repr__(self):
        return f"Account({self.owner!r}, {self.balance})"
"""
OLD, NEW = "Account", "Wallet"
PROSE = (
    "The fisherman had seen many storms, but none like the one that",
    "A bicycle stays upright while it rolls because",
    "In the first years of the Roman republic, the senate",
    "Dear Anna, thank you for your letter about the garden. This spring we",
)
LIST = "The people who came to the meeting, and what each of them said:\n"
SCHEMA = {
    "type": "array",
    "minItems": 50,
    "items": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "said": {"type": "string"}},
        "required": ["name", "age", "said"],
        "additionalProperties": False,
    },
}
GRAMMAR = (
    'root ::= line{50,}\nline ::= name ", " [0-9]{1,3} ": " said "\\n"\nname ::= [A-Z] [a-z]+\nsaid ::= [^\\n]{8,80}\n'
)


@dataclass(frozen=True, slots=True)
class Compared:
    """Seconds of the runs of the same work done in two ways, in turns."""

    name: str
    beside: str  # name of the way it is compared with
    work: tuple[int, int]  # tokens of a run, and of one that it is compared with
    runs: abc.Sequence[float]
    plain: abc.Sequence[float]
    more: dict[str, Any]

    def result(self) -> dict[str, Any]:
        rate, plain = (n / median(seconds) for n, seconds in zip(self.work, (self.runs, self.plain), strict=True))
        known = {"name": self.name, "engine": "llamina", "rate": rate, "unit": "tokens/s", "seconds": [*self.runs]}
        other = {"beside": self.beside, "plain_rate": plain, "plain_seconds": [*self.plain]}
        return {**known, **other, "ratio": rate / plain, **self.more}


def scenarios(
    engine: Engine, prefix: int, tokens: int, repeats: int, tick: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """A result for each scenario: `prefix` tokens are shared with an earlier turn, answers have `tokens`."""
    tick("a second turn")
    yield second_turn(engine, prefix, repeats)
    compiler = Compiler(engine.tokenizer, engine.runner.plan.vocab)
    for name, kind, given in (("json schema", "json_schema", SCHEMA), ("grammar", "grammar", GRAMMAR)):
        tick(name)
        yield from constrained(engine, compiler, name, {kind: given}, tokens, repeats)
    tick("copying")
    yield copying(engine, repeats)
    tick("prose")
    yield prose(engine, 2 * tokens, repeats)


def second_turn(engine: Engine, prefix: int, repeats: int) -> dict[str, Any]:
    """Time to first token of a second turn, whose prompt begins with the first turn, against that of the first."""
    answer, more, vocab = 16, 16, engine.runner.plan.vocab
    runs, plain = [], []
    for seed in range(repeats):
        drawn = np.random.default_rng([seed, prefix]).integers(0, vocab, prefix + more).tolist()
        first = _run(engine, drawn[:prefix], answer)
        second = _run(engine, [*first.known, *drawn[prefix:]], 1)
        plain.append(_first_token(first))
        runs.append(_first_token(second))
    work = prefix + answer + more, prefix
    seconds = {"first_token_seconds": median(runs), "plain_first_token_seconds": median(plain)}
    return Compared("second turn", "first turn", work, runs, plain, seconds).result()


def _run(engine: Engine, prompt: abc.Sequence[int], tokens: int) -> Sequence:
    options = {"max_tokens": tokens, "ignore_eos": True}
    sequence = engine.submit(Request(prompt, Sampling(temperature=0), **options))  # type: ignore[arg-type]
    while not sequence.done:
        engine.step()
    return sequence


def _first_token(sequence: Sequence) -> float:
    assert sequence.times.first is not None
    return sequence.times.first - sequence.times.submitted


def constrained(
    engine: Engine, compiler: Compiler, name: str, given: dict[str, Any], tokens: int, repeats: int
) -> Iterator[dict[str, Any]]:
    """The time of each token mask of a constrained answer, and the answer against an unconstrained one as long."""
    options: dict[str, Any] = {"temperature": 0, "speculate": "off"}
    answer = engine.generate(LIST, max_tokens=tokens, **options, **given).tokens
    seconds, forced = _masks(compiler, given, answer, engine.runner.plan.vocab)
    found = {"engine": "llamina", "rate": 1 / median(seconds), "unit": "masks/s", "seconds": seconds}
    yield {"name": f"{name}: mask", **found, "microseconds": 1e6 * median(seconds), "slowest": 1e6 * max(seconds)}
    runs, plain = [], []
    for _ in range(repeats):
        runs.append(_seconds(lambda: engine.generate(LIST, max_tokens=tokens, **options, **given)))
        plain.append(_seconds(lambda: engine.generate(LIST, max_tokens=len(answer), ignore_eos=True, **options)))
    work = len(answer), len(answer)
    yield Compared(f"{name}: answer", "plain", work, runs, plain, {"forced": forced, "tokens": len(answer)}).result()


def _masks(compiler: Compiler, given: dict[str, Any], answer: abc.Sequence[int], vocab: int) -> tuple[list[float], int]:
    """Seconds of each mask, and the number of tokens without one, which the grammar forces."""
    wanted = source(**given)
    assert wanted is not None
    constraint = compiler.constraint(wanted)
    logits, at, seconds = np.zeros(vocab, np.float32), 0, []
    while at < len(answer) and not constraint.done:
        logits[:] = 0
        seconds.append(_seconds(lambda: constraint.apply(logits)))
        constraint.consume(answer[at])
        at += 1 + len(constraint.forced())
    return seconds, len(answer) - len(seconds)


def copying(engine: Engine, repeats: int) -> dict[str, Any]:
    """Prompt lookup: code repeated with one name changed. The answer is forced, as not every model would give it."""
    prompt = engine.encode(f"Repeat this code, with {OLD} renamed to {NEW}:\n\n{CODE}\n\n")
    answer = engine.encode(CODE.replace(OLD, NEW), add_special=False)

    def say(known: abc.Sequence[int], logits: Floats) -> Floats:
        logits[answer[len(known) - len(prompt)]] = logits.max() + 1
        return logits

    return _guessed(engine, "copying", [prompt], len(answer), repeats, temperature=0, logits_processor=say)


def prose(engine: Engine, tokens: int, repeats: int) -> dict[str, Any]:
    """Speculative decoding of prose, where there is little to copy."""
    prompts = [engine.encode(text) for text in PROSE]
    return _guessed(engine, "prose", prompts, tokens, repeats, temperature=0.8, seed=1)


def _guessed(
    engine: Engine, name: str, prompts: abc.Sequence[list[int]], tokens: int, repeats: int, **options: Any
) -> dict[str, Any]:
    """Answers with draft tokens where those pay, against decoding one by one; both give the same text."""
    times: dict[str, list[list[float]]] = {mode: [[] for _ in prompts] for mode in ("auto", "off")}
    drafted = accepted = 0
    for i in range(repeats + 1):
        for at, prompt in enumerate(prompts):
            for mode in ("auto", "off") if i % 2 else ("off", "auto"):  # in turns: machines have slow moments
                made = engine.generate(prompt, max_tokens=tokens, ignore_eos=True, speculate=mode, **options).usage
                if i:  # the first time is for the prompt, and for learning what steps cost
                    times[mode][at].append(made.completion_seconds)
                    drafted, accepted = drafted + made.drafted_tokens, accepted + made.accepted_tokens
    runs, plain = ([sum(of) for of in zip(*found, strict=True)] for found in times.values())
    texts = zip(times["auto"], times["off"], strict=True)
    least = min(median(plain / guessed for guessed, plain in zip(*text, strict=True)) for text in texts)
    more = {"least_ratio": least, "drafted": drafted // repeats, "accepted": accepted // repeats}
    work = len(prompts) * (tokens - 1)  # the first token comes with the prompt
    return Compared(name, "one by one", (work, work), runs, plain, more).result()


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
