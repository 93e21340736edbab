"""Requests through the public API: streams, limits, refusals, cancellation, several engines."""

import gc
from pathlib import Path

import numpy as np
import pytest

import llamina
from llamina import Completion, Engine, LlaminaError, Request, Sampling
from llamina.errors import CapacityError, ContextTooLong, InvalidSampling, ModelNotFound, RequestError

PROMPT = "Once upon a time"
GREEDY = {"temperature": 0, "max_tokens": 24}


def test_stream_is_generate(engine: Engine) -> None:
    for options in (GREEDY, {"seed": 5, "temperature": 1.2, "max_tokens": 24}, {"seed": 5, "max_tokens": 30}):
        stream = engine.stream(PROMPT, **options)
        deltas = list(stream)
        whole = engine.generate(PROMPT, **options)
        assert "".join(map(str, deltas)) == whole.text == str(whole)
        *others, last = deltas
        assert len(others) >= 5 and all(delta.text and not delta.finish_reason for delta in others)
        assert last.finish_reason == whole.finish_reason and last.computed == len(stream.sequence.known) - 1
        assert [token for delta in deltas for token in delta.tokens] == stream.sequence.generated
        assert {delta.id for delta in deltas} == {stream.sequence.id} and list(stream) == []
        again = stream.result()
        assert (again.text, again.tokens) == (whole.text, whole.tokens)
        assert again.finish_reason == whole.finish_reason


def test_result_after_some_pieces(engine: Engine) -> None:
    stream = engine.stream(PROMPT, **GREEDY)
    next(stream), next(stream)
    assert stream.result().text == engine.generate(PROMPT, **GREEDY).text


def test_tokens_make_the_text(engine: Engine) -> None:
    result = engine.generate(PROMPT, **GREEDY)
    assert engine.tokenizer.decode(result.tokens, continued=True) == result.text
    assert isinstance(result, Completion)
    assert result.usage.prompt_tokens == len(engine.encode(PROMPT))
    assert result.usage.completion_tokens == len(result.tokens) == 24
    assert result.usage.prompt_seconds > 0 and result.usage.completion_seconds > 0
    assert result.usage.prompt_rate > 0 and result.usage.completion_rate > 0


def test_characters_of_several_tokens(engine: Engine) -> None:
    """Byte tokens: no piece holds half a character."""
    tokens = engine.encode("é🦙", add_special=False)
    assert len(tokens) > 2
    sequence = engine.submit(Request([1], max_tokens=len(tokens), logprobs=0))  # so the host samples
    script = iter(tokens)
    sequence.sample = lambda logits: [next(script)]  # type: ignore[method-assign]
    deltas = []
    while sequence.finish_reason is None:
        deltas += engine.step()
    assert "".join(map(str, deltas)) == engine.tokenizer.decode(tokens, continued=True)
    assert "\ufffd" not in sequence.text
    assert [p for p in sequence.output.pieces if p.strip()] == ["é", "🦙"]


def test_half_a_character_at_the_end(engine: Engine) -> None:
    tokens = engine.encode("🦙", add_special=False)[:-1]
    sequence = engine.submit(Request([1], max_tokens=len(tokens), logprobs=0))  # so the host samples
    script = iter(tokens)
    sequence.sample = lambda logits: [next(script)]  # type: ignore[method-assign]
    while sequence.finish_reason is None:
        engine.step()
    assert sequence.text.endswith("\ufffd"), "flushed, not lost"


@pytest.mark.parametrize("n", [1, 2, 17])
def test_max_tokens(engine: Engine, n: int) -> None:
    result = engine.generate(PROMPT, temperature=0, max_tokens=n)
    assert len(result.tokens) == n and result.finish_reason == "length"


def test_seeds(engine: Engine) -> None:
    def run(seed: int | None) -> list[int]:
        return engine.generate(PROMPT, seed=seed, temperature=1.0, max_tokens=20).tokens

    assert run(3) == run(3) != run(4)
    assert len({tuple(run(None)) for _ in range(4)}) > 1


def test_a_full_context(stories: Path) -> None:
    with llamina.load(stories, context=32, threads=1) as engine:
        tokens = engine.encode(PROMPT)
        result = engine.generate(tokens, temperature=0, max_tokens=None)
        assert result.finish_reason == "length"
        assert len(tokens) + len(result.tokens) == 32
        assert engine.core.pages.free == engine.core.pages.total
        with llamina.load(stories, context=64, threads=1) as larger:
            assert larger.generate(tokens, temperature=0, max_tokens=None).text.startswith(result.text)


def test_a_prompt_that_just_fits(stories: Path) -> None:
    with llamina.load(stories, context=20, threads=1) as engine:
        result = engine.generate([1] * 19, temperature=0)
        assert len(result.tokens) == 1 and result.finish_reason == "length"
        assert engine.logits([1] * 20).shape == (20, engine.runner.plan.vocab)


@pytest.mark.parametrize("n", [20, 21, 5000])
def test_a_prompt_too_long(stories: Path, n: int) -> None:
    with llamina.load(stories, context=20, threads=1) as engine:
        with pytest.raises(ContextTooLong, match=rf"{n} tokens .* 20\b") as caught:
            engine.generate([1] * n)
        assert caught.value.param == "prompt"
        assert not engine.core.waiting and engine.generate(PROMPT, max_tokens=2).text


@pytest.mark.parametrize("prompt", [[], "", ()], ids=repr)
def test_an_empty_prompt(smol: Engine, prompt: object) -> None:
    with pytest.raises(RequestError, match="empty") as caught:
        smol.generate(prompt)  # SmolLM2 puts no BOS in front
    assert caught.value.param == "prompt"
    with pytest.raises(RequestError, match="empty"):
        smol.logits([])


def test_nothing_but_bos(engine: Engine) -> None:
    assert engine.encode("") == [engine.tokenizer.bos]
    assert engine.generate("", **GREEDY).tokens


@pytest.mark.parametrize("token", [-1, 512, 1 << 31, 1 << 70])
def test_tokens_outside_the_vocabulary(engine: Engine, token: int) -> None:
    for call in (engine.generate, engine.logits):
        with pytest.raises(RequestError, match="vocabulary of 512") as caught:
            call([1, token, 2])
        assert caught.value.param == "prompt"


def test_unknown_options(engine: Engine) -> None:
    for call in (engine.generate, engine.stream):
        with pytest.raises(RequestError, match=r"temprature.*temperature") as caught:
            call(PROMPT, temprature=1.0)
        assert caught.value.param == "temprature"


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"top_p": 2}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -5}, "max_tokens"),
        ({"max_tokens": 2.5}, "max_tokens"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
    ],
    ids=str,
)
def test_options_out_of_range(engine: Engine, options: dict[str, object], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        engine.generate(PROMPT, **options)
    assert caught.value.param == param and param in str(caught.value)
    assert isinstance(caught.value, InvalidSampling) == (param != "max_tokens")


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"threads": 0}, "threads"),
        ({"context": 1}, "context"),
        ({"context": 10**9}, "context"),
        ({"step_tokens": 0}, "step_tokens"),
        ({"max_tokens": 5}, "max_tokens"),
        ({"max_sequences": 0}, "max_sequences"),
        ({"cache_tokens": -1}, "cache_tokens"),
        ({"cache_tokens": 0}, "cache_tokens"),
        ({"kv_type": "q4"}, "kv_type"),
        ({"backend": "abacus"}, "backend"),
    ],
    ids=str,
)
def test_load_options_out_of_range(stories: Path, options: dict[str, object], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        llamina.load(stories, **options)
    assert caught.value.param == param


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound):
        llamina.load(tmp_path / "nothing.gguf")
    with pytest.raises(LlaminaError):
        llamina.load(tmp_path)


def test_leaving_the_iterator(engine: Engine) -> None:
    for _ in engine.stream(PROMPT, **GREEDY):
        assert engine.core.pages.free < engine.core.pages.total
        break
    assert engine.core.pages.free == engine.core.pages.total and not engine.core.running


def test_dropping_a_stream(engine: Engine) -> None:
    gc.disable()  # nobody needs to wait for the collector
    try:
        engine.stream(PROMPT, **GREEDY)  # never begun
        assert not engine.core.waiting
        started = engine.stream(PROMPT, **GREEDY)
        next(started)
        assert engine.core.running
        del started
        assert not engine.core.running and engine.core.pages.free == engine.core.pages.total
    finally:
        gc.enable()


def test_closing_a_stream(engine: Engine) -> None:
    unbegun, begun = engine.stream(PROMPT, **GREEDY), engine.stream(PROMPT, **GREEDY)
    first = next(begun)
    unbegun.close(), begun.close(), begun.close()
    assert not engine.core.running and not engine.core.waiting and engine.core.pages.free == engine.core.pages.total
    assert list(begun) == []
    result = begun.result()
    assert result.finish_reason == "cancelled" and result.text == first.text


def test_cancel(engine: Engine) -> None:
    sequence, other = (engine.submit(Request([1, 2, 3], max_tokens=5)) for _ in range(2))
    engine.step()
    engine.cancel(sequence)
    engine.cancel(sequence)
    assert sequence.finish_reason == "cancelled" and engine.core.running == [other]
    while other.finish_reason is None:
        assert [delta.id for delta in engine.step()] == [other.id]
    assert other.finish_reason == "length"


def test_an_error_in_a_step_cancels(engine: Engine) -> None:
    stream = engine.stream(PROMPT, **GREEDY, logprobs=0)
    next(stream)
    stream.sequence.sample = lambda logits: 1 // 0  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        next(stream)
    assert not engine.core.running and engine.core.pages.free == engine.core.pages.total


def test_deltas(engine: Engine) -> None:
    sequence = engine.submit(Request(engine.encode(PROMPT), Sampling(temperature=0), max_tokens=3))
    deltas = []
    while sequence.finish_reason is None:
        deltas += engine.step()
    assert {d.id for d in deltas} == {sequence.id}
    assert [t for d in deltas for t in d.tokens] == sequence.generated
    assert "".join(d.text for d in deltas) == sequence.text
    assert [d.finish_reason for d in deltas] == [None, None, "length"]
    assert [(d.computed, d.prompt_tokens) for d in deltas] == [(5, 5), (6, 5), (7, 5)]
    assert engine.step() == []


def test_a_sequence_that_the_cache_cannot_hold(stories: Path) -> None:
    """Refused at once, chunked or not, and nobody else suffers."""
    for chunk in (512, 16):
        with llamina.load(stories, threads=1, context=256, cache_tokens=48, step_tokens=chunk) as engine:
            for call in (engine.generate, engine.logits):
                with pytest.raises(CapacityError, match=r"49 tokens .* 48\b.*cache_tokens"):
                    call([1] * 49)
            assert engine.logits([1] * 48).shape[0] == 48
            assert engine.generate(PROMPT, **GREEDY).finish_reason == "length"


def test_a_sequence_that_outgrows_the_cache(stories: Path) -> None:
    """It ends as it would in a full context, and its text is kept."""
    with (
        llamina.load(stories, threads=1, context=256, cache_tokens=48) as engine,
        llamina.load(stories, threads=1, context=256) as roomy,
    ):
        tokens = engine.encode(PROMPT)
        result = engine.generate(tokens, temperature=0, max_tokens=100)
        assert result.finish_reason == "length" and len(tokens) + len(result.tokens) == 49
        longer = roomy.generate(tokens, temperature=0, max_tokens=100)
        assert longer.tokens[: len(result.tokens)] == result.tokens
        assert engine.core.pages.free == engine.core.pages.total


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("chunk", [512, 16, 7])
def test_a_sequence_that_no_cache_holds_fails_alone(stories: Path, chunk: int, running: bool) -> None:
    """Were its tokens not counted before, it would preempt others, and itself, for ever."""
    with llamina.load(stories, threads=1, context=256, cache_tokens=32, step_tokens=chunk) as engine:
        expected = engine.generate(PROMPT, **GREEDY).tokens
        large, other = engine.stream([1] * 9, max_tokens=20, logprobs=0), engine.stream(PROMPT, **GREEDY)
        if running:
            engine.step()
        assert (large.sequence in engine.core.running) == running
        large.sequence.known += [2] * (33 - len(large.sequence.known))
        with pytest.raises(CapacityError, match=r"33 tokens .* 2 KV cache pages.*cache_tokens"):
            large.result()
        assert large.sequence.finish_reason == "error" and large.sequence.lease is None
        assert other.result().tokens == expected
        assert engine.core.pages.free == engine.core.pages.total


def test_two_engines_at_once(stories: Path) -> None:
    with (
        llamina.load(stories, threads=2, context=64) as one,
        llamina.load(stories, threads=1, step_tokens=3, kv_type="f32") as two,
    ):
        expected = one.generate(PROMPT, **GREEDY).text
        streams = [one.stream(PROMPT, **GREEDY), two.stream(PROMPT, **GREEDY)]
        texts = ["".join(map(str, deltas)) for deltas in zip(*zip(*streams, strict=True), strict=True)]
        assert texts == [expected, expected]


def test_life(stories: Path) -> None:
    with llamina.load(stories, threads=2) as engine:
        stream = engine.stream(PROMPT, **GREEDY)
        next(stream)
    with pytest.raises(RequestError, match="closed before the answer was complete"):
        list(stream)
    assert list(stream) == [] and stream.sequence.finish_reason == "error"
    engine.close()
    engine.close()
    for call in (engine.generate, engine.stream, lambda p: engine.logits([1]), lambda p: engine.step()):
        with pytest.raises(RequestError, match="closed"):
            call(PROMPT)


@pytest.mark.parametrize("all_logits", [False, True])
def test_a_prompt_in_any_form(engine: Engine, all_logits: bool) -> None:
    tokens = engine.encode(PROMPT)
    forms = [tokens, tuple(tokens), np.array(tokens), np.array(tokens, np.uint16)]
    if all_logits:
        results = [engine.logits(form).tobytes() for form in [*forms, iter(tokens)]]
    else:
        results = [engine.generate(form, **GREEDY).text for form in [*forms, PROMPT]]
    assert len(set(results)) == 1


def test_chat_follows_the_template(smol: Engine) -> None:
    messages = [{"role": "user", "content": "What is the capital of Japan?"}]
    rendered = smol.render_chat(messages)
    assert rendered.endswith("<|im_start|>assistant\n") and "capital of Japan?<|im_end|>" in rendered
    result = smol.chat(messages, **GREEDY)
    assert result.text == smol.generate(smol.encode(rendered, add_special=False), **GREEDY).text
    assert "Tokyo" in result.text
    turns = [*messages, {"role": "assistant", "content": result.text}, {"role": "user", "content": "Thanks"}]
    assert smol.chat(turns, **GREEDY).usage.prompt_tokens > result.usage.prompt_tokens


def test_chat_without_a_template(engine: Engine) -> None:
    with pytest.raises(RequestError):
        engine.chat([{"role": "user", "content": "hi"}])
