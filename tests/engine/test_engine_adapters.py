"""Adapters through the engine: loaded and unloaded while it runs, stacked, mixed in one batch, their own prefixes."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import llamina
from llamina import Engine
from llamina.engine import Request, Session
from llamina.errors import CapacityError, ModelFileError, ModelNotFound, RequestError, SnapshotError, UnsupportedModel
from lora_files import Pairs, draw, merge, save
from skips import on_a_gpu

PROMPT = "Once upon a time, there was a little girl named Lily. She loved to play outside in the park."
GREEDY = {"temperature": 0.0, "max_tokens": 24, "ignore_eos": True}
ENDINGS = ("attn_q.weight", "attn_v.weight", "ffn_down.weight")
NAMES = [f"blk.{layer}.{ending}" for layer in range(5) for ending in ENDINGS]


@pytest.fixture(scope="module")
def pairs(stories: Path) -> dict[str, Pairs]:
    """Adapters of different ranks, beside different matrices."""
    wide = [*NAMES, "token_embd.weight", *(f"blk.{layer}.ffn_up.weight" for layer in range(5))]
    return {"one": draw(stories, NAMES, 4, 1), "two": draw(stories, NAMES, 9, 2), "wide": draw(stories, wide, 4, 3)}


@pytest.fixture(scope="module")
def adapters(pairs: dict[str, Pairs], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("adapters")
    return {name: save(folder / f"{name}.gguf", "llama", found, alpha=8.0) for name, found in pairs.items()}


@pytest.fixture
def adapted(stories: Path, adapters: dict[str, Path]) -> Iterator[Engine]:
    with llamina.load(stories, threads=2) as engine:
        engine.load_adapter(adapters["one"])
        engine.load_adapter(adapters["two"])
        yield engine


def test_merged_weights_say_the_same(adapted: Engine, stories: Path, pairs: dict[str, Pairs], tmp_path: Path) -> None:
    merged = merge(stories, tmp_path / "merged.gguf", [(pairs["one"], 0.5 * 8 / 4), (pairs["two"], 1.5 * 8 / 9)])
    use = {"one": 0.5, "two": 1.5}
    tokens = adapted.encode(PROMPT)
    with llamina.load(merged, threads=1) as engine:
        want, said = engine.logits(tokens), engine.generate(PROMPT, **GREEDY)
    got = adapted.logits(tokens, use)
    assert np.abs(got - want).max() < 2e-3 * np.abs(want).max()
    assert adapted.generate(PROMPT, **GREEDY, adapters=use).text == said.text
    assert adapted.generate(PROMPT, **GREEDY).text != said.text


def test_a_mixed_batch_has_the_bits_of_each_alone(stories: Path, adapters: dict[str, Path], engine: Engine) -> None:
    """Requests without adapters have those of an engine that knows of none."""
    uses: list[dict[str, float]] = [{}, {"one": 1.0}, {"two": 0.7, "one": -0.3}, {"one": 0.0}, {"wide": 2.0}, {}]
    tokens = [engine.encode(PROMPT)[: 30 - 3 * i] for i in range(len(uses))]
    with llamina.load(stories, threads=2, step_tokens=16) as mixed:
        for path in adapters.values():
            mixed.load_adapter(path)
        requests = [Request(t, reads=range(len(t)), adapters=use) for t, use in zip(tokens, uses, strict=True)]
        sequences = [mixed.submit(request) for request in requests]
        while any(s.finish_reason is None for s in sequences):
            mixed.step()
    for sequence, use, known in zip(sequences, uses, tokens, strict=True):
        if not any(use.values()):
            assert np.array_equal(np.concatenate(sequence.rows), engine.logits(known))
            continue
        with llamina.load(stories, threads=1) as alone:
            for name in use:
                alone.load_adapter(adapters[name])
            assert np.array_equal(np.concatenate(sequence.rows), alone.logits(known, use))


def test_hidden_states_are_adapted(stories: Path, adapters: dict[str, Path], engine: Engine) -> None:
    """Loaded before the first embedding, and after it: the program of hidden states follows."""
    tokens = engine.encode(PROMPT)

    def hidden(some: Engine, **use: float) -> np.ndarray:
        return some.hidden(tokens, use)

    with llamina.load(stories, threads=2) as late, llamina.load(stories, threads=2) as early:
        plain = hidden(late)
        assert np.array_equal(plain, engine.hidden(tokens))
        for path in adapters.values():
            late.load_adapter(path)
            early.load_adapter(path)
        assert np.array_equal(hidden(late), plain) and np.array_equal(hidden(early), plain)
        assert np.array_equal(hidden(late, wide=1.0), hidden(early, wide=1.0))
        assert not np.allclose(hidden(late, wide=1.0), plain, atol=1e-3)
        late.unload_adapter("wide")
        late.load_adapter(adapters["one"], "wide")
        assert np.array_equal(hidden(late, wide=1.0), hidden(early, one=1.0))


def test_readings_are_adapted(adapted: Engine, engine: Engine) -> None:
    """All of them are those of the adapted logits and hidden states; without names, those of the model alone."""
    use, tokens = {"one": 0.5, "two": 1.5}, engine.encode(PROMPT)
    hidden = adapted.hidden(tokens, use)[-1]
    assert np.allclose(adapted.embed(PROMPT, pooling="last", adapters=use)[0], hidden / np.linalg.norm(hidden))
    logits = adapted.logits(tokens, use).astype(np.float64)
    logprobs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    wanted = logprobs[np.arange(len(tokens) - 1), tokens[1:]]
    assert np.allclose(adapted.token_scores(tokens, adapters=use).logprobs, wanted, atol=1e-4)
    assert np.allclose(adapted.score(tokens[:5], tokens[5:], adapters=use).logprobs, wanted[4:], atol=1e-4)
    assert np.isclose(adapted.perplexity(tokens, adapters=use), np.exp(-wanted.mean()), rtol=1e-4)
    assert adapted.perplexity(tokens) == engine.perplexity(tokens) != adapted.perplexity(tokens, adapters=use)
    assert np.array_equal(adapted.embed(PROMPT), engine.embed(PROMPT))
    with pytest.raises(RequestError, match="there is no adapter 'three'"):
        adapted.embed(PROMPT, adapters={"three": 1.0})


def test_generations_side_by_side_say_what_they_say_alone(adapted: Engine) -> None:
    uses: list[dict[str, float]] = [{}, {"one": 1.0}, {"two": 1.0}, {"one": 1.0, "two": 1.0}]
    alone = [adapted.generate(PROMPT, **GREEDY, cache_prompt=False, adapters=use).text for use in uses]
    assert len(set(alone)) == len(alone), "adapters that change nothing prove nothing"
    together = [adapted.stream(PROMPT, **GREEDY, adapters=use) for use in uses]
    assert [generation.result().text for generation in together] == alone


def test_prefixes_are_never_shared_between_adapters(adapted: Engine, stories: Path, adapters: dict[str, Path]) -> None:
    def ask(**adapters: float) -> tuple[str, int]:
        result = adapted.generate(PROMPT, **GREEDY, adapters=adapters)
        return result.text, result.usage.cached_tokens

    plain, one, half = ask(), ask(one=1.0), ask(one=0.5)
    assert [cached for _, cached in (plain, one, half)] == [0, 0, 0]
    for again, before in ((ask(), plain), (ask(one=1.0), one), (ask(one=0.5), half)):
        assert again[0] == before[0] and again[1] > 0
    adapted.unload_adapter("one")
    adapted.load_adapter(adapters["two"], "one")
    assert ask(one=1.0)[1] == 0, "another adapter of the same name is another adapter"
    adapted.unload_adapter("one")
    adapted.load_adapter(adapters["one"])
    assert ask(one=1.0)[0] == one[0] and ask(one=1.0)[1] > 0, "the same contents are the same adapter"


def test_loading_and_unloading_while_requests_run(stories: Path, adapters: dict[str, Path]) -> None:
    """The plan is compiled anew under a request that goes on with what it has computed."""
    with llamina.load(stories, threads=2) as engine:
        want = engine.generate(PROMPT, **GREEDY, cache_prompt=False).text
        steps = len(engine.runner.plan.steps)
        running = engine.stream(PROMPT, **GREEDY)
        text = str(next(running)) + str(next(running))
        engine.load_adapter(adapters["one"])
        assert len(engine.runner.plan.steps) == steps + len(NAMES)
        beside = engine.stream(PROMPT, **GREEDY, adapters={"one": 1.0})
        text += str(next(running))
        with pytest.raises(RequestError, match="1 requests use adapter 'one'"):
            engine.unload_adapter("one")
        engine.load_adapter(adapters["two"])
        program = engine.runner.program
        engine.load_adapter(adapters["wide"])
        assert engine.runner.program is not program
        assert text + "".join(map(str, running)) == want
        said = beside.result().text
        program = engine.runner.program
        for name in ("one", "two", "wide"):
            engine.unload_adapter(name)
        assert engine.load_adapter(adapters["one"], "again") == "again"
        assert engine.runner.program is program, "nothing new to compile"
        assert engine.generate(PROMPT, **GREEDY, adapters={"again": 1.0}).text == said != want
        assert engine.runner.adapters.names == ["again"]


def test_forks_rewinds_and_snapshots_keep_their_adapters(
    adapted: Engine, stories: Path, adapters: dict[str, Path]
) -> None:
    use = {"one": 1.0, "two": -0.5}
    want = adapted.generate(PROMPT, **GREEDY, adapters=use)
    running = adapted.stream(PROMPT, **GREEDY, adapters=use)
    next(running)
    data, twin = adapted.snapshot(running.sequence), adapted.follow(adapted.fork(running.sequence))
    assert twin.result().tokens == running.result().tokens == want.tokens
    adapted.rewind(running.sequence, 10)
    assert running.result().tokens == want.tokens
    with llamina.load(stories, threads=1) as other:
        with pytest.raises(RequestError, match="no adapter 'one': none is loaded"):
            other.resume(data)
        other.load_adapter(adapters["two"], "one")
        other.load_adapter(adapters["one"], "two")
        with pytest.raises(SnapshotError, match="other adapters than are loaded here as one, two"):
            other.resume(data)
        other.unload_adapter("one")
        other.unload_adapter("two")
        other.load_adapter(adapters["one"])
        other.load_adapter(adapters["two"])
        assert other.follow(other.resume(data)).result().tokens == want.tokens
    adapted.unload_adapter("two")
    with pytest.raises(RequestError, match="no adapter 'two': loaded are one"):
        adapted.rewind(running.sequence, 5)


def test_a_snapshot_of_what_is_done_has_no_states_of_an_adapter_that_is_gone(
    adapted: Engine, adapters: dict[str, Path]
) -> None:
    """They would pass for those of the adapter that has its name now."""
    before = adapted.stream(PROMPT, **GREEDY, adapters={"one": 1.0})
    before.result()
    adapted.unload_adapter("one")
    adapted.load_adapter(adapters["wide"], "one")
    data = adapted.snapshot(before.sequence)
    adapted.core.pages.forget()
    adapted.resume(data)
    again = adapted.generate(PROMPT, **GREEDY, adapters={"one": 1.0})
    alone = adapted.generate(PROMPT, **GREEDY, adapters={"one": 1.0}, cache_prompt=False)
    assert again.tokens == alone.tokens and again.usage.cached_tokens == 0


def test_an_adapter_with_an_invocation_acts_from_its_last_place_on(
    stories: Path, adapted: Engine, pairs: dict[str, Pairs], tmp_path: Path
) -> None:
    tokens = adapted.encode(PROMPT)
    wanted = tokens[20:22]
    path = save(tmp_path / "late.gguf", "llama", pairs["one"], 8.0, adapter__alora__invocation_tokens=wanted)
    adapted.load_adapter(path)
    late, plain, whole = (adapted.logits(tokens, use) for use in ({"late": 1.0}, {}, {"one": 1.0}))
    assert np.array_equal(late[:20], plain[:20])
    assert not np.array_equal(late[20], plain[20]) and not np.array_equal(late[20], whole[20])
    with pytest.raises(RequestError, match="not in the prompt"):
        adapted.generate(tokens[:20], adapters={"late": 1.0})
    with pytest.raises(RequestError, match="context_shift"):
        adapted.generate(tokens, adapters={"late": 1.0}, context_shift=True)
    first = adapted.generate(tokens, **GREEDY, adapters={"late": 1.0})
    assert adapted.generate(tokens, **GREEDY, adapters={"late": 1.0}).tokens == first.tokens
    again = [*tokens, *wanted]  # the same beginning, but the adapter acts from behind it
    shared = adapted.generate(again, **GREEDY, adapters={"late": 1.0})
    assert shared.usage.cached_tokens == 0
    assert shared.tokens == adapted.generate(again, **GREEDY, adapters={"late": 1.0}, cache_prompt=False).tokens


def test_the_reference_backend_agrees(stories: Path, adapters: dict[str, Path], adapted: Engine) -> None:
    tokens, use = adapted.encode(PROMPT)[:12], {"two": 1.0, "one": 0.5}
    with llamina.load(stories, backend="reference") as engine:
        plain = engine.logits(tokens)
        engine.load_adapter(adapters["one"])
        engine.load_adapter(adapters["two"])
        got = engine.logits(tokens, use)
        assert np.array_equal(engine.logits(tokens), plain)
    assert np.abs(adapted.logits(tokens, use) - got).max() < (0.05 if on_a_gpu() else 1e-3)  # float16 in attention


def test_what_does_not_fit_is_refused(engine: Engine, stories: Path, pairs: dict[str, Pairs], tmp_path: Path) -> None:
    name = NAMES[0]
    a, b = pairs["one"][name]
    cases = [
        (save(tmp_path / "arch.gguf", "qwen2", {name: (a, b)}), UnsupportedModel, "of architecture qwen2"),
        (save(tmp_path / "in.gguf", "llama", {name: (a[:, 1:], b)}), UnsupportedModel, "do not fit its"),
        (save(tmp_path / "out.gguf", "llama", {name: (a, b[1:])}), UnsupportedModel, "do not fit its"),
        (save(tmp_path / "rank.gguf", "llama", {name: (a[1:], b)}), UnsupportedModel, "do not fit its"),
        (save(tmp_path / "none.gguf", "llama", {"blk.9.attn_q.weight": (a, b)}), UnsupportedModel, "not among"),
        (save(tmp_path / "norm.gguf", "llama", {"output_norm.weight": (a, b)}), UnsupportedModel, "not among"),
        (save(tmp_path / "empty.gguf", "llama", {}), ModelFileError, "no tensors"),
        (save(tmp_path / "kind.gguf", "llama", {name: (a, b)}, adapter__type="ia3"), UnsupportedModel, "'ia3'"),
        (save(tmp_path / "text.gguf", "llama", {name: (a, b)}, adapter__alora__invocation_tokens="x"),
         ModelFileError, "it must be tokens"),
        (stories, UnsupportedModel, "no LoRA adapter"),
        (tmp_path / "nowhere.gguf", ModelNotFound, "no such file"),
    ]  # fmt: skip
    program = engine.runner.program
    for path, error, message in cases:
        with pytest.raises(error, match=message):
            engine.load_adapter(path)
    assert engine.runner.program is program and engine.runner.adapters.names == []


def test_mistakes_in_requests(adapted: Engine, adapters: dict[str, Path]) -> None:
    with pytest.raises(RequestError, match="no adapter 'three': loaded are one, two") as caught:
        adapted.generate(PROMPT, adapters={"three": 1.0})
    assert caught.value.param == "adapters"
    for wrong in ({"one": "1"}, {"one": float("nan")}, {"one": True}, {1: 1.0}, ["one"]):
        with pytest.raises(RequestError, match="must be"):
            adapted.generate(PROMPT, adapters=wrong)
    with pytest.raises(RequestError, match="no adapter 'three'"):
        adapted.unload_adapter("three")
    with pytest.raises(RequestError, match="loaded already"):
        adapted.load_adapter(adapters["one"])
    assert not adapted.core.running and not adapted.core.waiting


def test_there_is_an_end_to_the_slots(stories: Path, pairs: dict[str, Pairs], tmp_path: Path) -> None:
    path = save(tmp_path / "small.gguf", "llama", {NAMES[0]: pairs["one"][NAMES[0]]})
    with llamina.load(stories, threads=1, kv_type="f32") as engine:
        names = [engine.load_adapter(path, f"{i}") for i in range(64)]
        with pytest.raises(CapacityError, match="unload one"):
            engine.load_adapter(path, "64")
        tokens = engine.encode(PROMPT)
        every = engine.logits(tokens, dict.fromkeys(names, 1 / 64))
        once = engine.logits(tokens, {"0": 1.0})
        assert np.abs(every - once).max() < 1e-3
        engine.unload_adapter("17")
        assert engine.load_adapter(path, "64") == "64"


def test_a_conversation_is_saved_with_its_adapters(smollm2: Path, tmp_path: Path) -> None:
    names = [f"blk.{layer}.attn_q.weight" for layer in (0, 3)]
    path = save(tmp_path / "one.gguf", "llama", draw(smollm2, names, 4, 1, 1.0))
    with llamina.load(smollm2, threads=2, context=256) as engine:
        engine.load_adapter(path)
        talk = Session(engine)
        talk.ask("Hello!", temperature=0.0, max_tokens=4, adapters={"one": 1.0}).result()
        talk.save(tmp_path / "talk")
    with llamina.load(smollm2, threads=2, context=256) as engine:
        with pytest.raises(RequestError, match="no adapter 'one'"):
            Session.load(engine, tmp_path / "talk")
        engine.load_adapter(path)
        again = Session.load(engine, tmp_path / "talk").ask("And?", max_tokens=2, adapters={"one": 1.0})
        assert again.result().usage.cached_tokens > 0
