"""Work that is not done twice: prefixes, forks, rewinds; and what happens when the context is full."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import llamina
from llamina import Engine, Request, Sampling
from llamina.errors import ContextTooLong, RequestError

GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 12, "ignore_eos": True}
SEEDED: dict[str, Any] = {"temperature": 1.2, "seed": 7, "max_tokens": 12, "ignore_eos": True}
SYSTEM = [1, *[3 + 7 * i % 500 for i in range(1999)]]


@pytest.fixture
def fresh(stories: Path) -> Iterator[Engine]:
    """An engine that has seen nothing yet."""
    with llamina.load(stories, threads=1, context=2048) as found:
        yield found


def run(engine: Engine) -> None:
    while engine.core.running or engine.core.waiting:
        engine.step()


@pytest.mark.parametrize("options", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_a_second_turn_begins_where_the_first_ended(fresh: Engine, options: dict[str, Any]) -> None:
    first = fresh.generate(SYSTEM, **options)
    turn = [*SYSTEM, *first.tokens, 40, 50, 60]
    steps, computed = 0, 0
    stream = fresh.stream(turn, **options)
    while not stream.sequence.generated:
        before = stream.sequence.computed
        fresh.step()
        computed = stream.sequence.computed - stream.sequence.ahead - max(before, stream.sequence.cached or 0)
        steps += 1
    assert (steps, stream.sequence.cached) == (1, 2000) and computed == 15, "under a tenth of the 2000"
    second = stream.result()
    assert second.usage.cached_tokens == 2000 and first.usage.cached_tokens == 0
    assert second.tokens == fresh.generate(turn, cache_prompt=False, **options).tokens


def test_a_shared_system_prompt(fresh: Engine) -> None:
    """Also while the first that has it is still running, and also in part."""
    first = fresh.stream([*SYSTEM[:1000], 9, 9], **GREEDY)
    next(first)
    others = [fresh.stream([*SYSTEM[:n], 11 + n % 7, 12], **GREEDY) for n in (1000, 1000, 555, 3)]
    results = [stream.result() for stream in others]
    assert [r.usage.cached_tokens for r in results] == [992, 992, 555, 3]
    for stream, result in zip(others, results, strict=True):
        alone = fresh.generate(stream.sequence.request.prompt, cache_prompt=False, **GREEDY)
        assert alone.tokens == result.tokens and alone.usage.cached_tokens == 0


def test_salts_and_private_requests_share_nothing(fresh: Engine) -> None:
    prompt = SYSTEM[:100]
    seen = [
        fresh.generate(prompt, **GREEDY, **options).usage.cached_tokens
        for options in (
            {"cache_prompt": False},
            {},
            {"cache_salt": "a tenant"},
            {"cache_prompt": False},
            {"cache_salt": "a tenant"},
            {"cache_salt": "another"},
            {},
        )
    ]
    assert seen == [0, 0, 0, 0, 96, 0, 96]


def test_kept_pages_give_way(stories: Path) -> None:
    """What is kept never stands in the way, and what was used longest ago goes first."""
    with llamina.load(stories, threads=1, context=256, cache_tokens=256) as engine:
        alone = {n: engine.generate([1, *[n] * 99], cache_prompt=False, **GREEDY).tokens for n in range(4, 9)}
        for _ in range(2):
            for n, tokens in alone.items():
                assert engine.generate([1, *[n] * 99], **GREEDY).tokens == tokens
        assert engine.generate([1, *[8] * 99], **GREEDY).usage.cached_tokens == 96
        assert engine.generate([1, *[4] * 99], **GREEDY).usage.cached_tokens in (1, 17), "gone: its first token is BOS"
        assert engine.generate([1, *[5] * 254], temperature=0, max_tokens=5).finish_reason == "length"
        engine.core.pages.forget()
        assert engine.core.pages.free == engine.core.pages.total and engine.core.pages.kept == 0


def test_preempted_requests_find_their_pages_again(stories: Path) -> None:
    """An urgent request takes the place; the other is not computed again from its beginning."""
    with llamina.load(stories, threads=1, context=512, max_sequences=1) as engine:
        plain = engine.submit(Request(SYSTEM[:300], Sampling(temperature=0), 20, ignore_eos=True))
        for _ in range(5):
            engine.step()
        urgent = engine.submit(Request([1, 2, 3], Sampling(temperature=0), 3, ignore_eos=True, priority=1))
        while urgent.finish_reason is None:
            engine.step()
        assert plain.computed == 0 and plain.lease is None
        engine.step()
        assert plain.computed - plain.ahead == 305 and plain.cached == 0
        run(engine)
        assert plain.generated == engine.generate(SYSTEM[:300], temperature=0, max_tokens=20, ignore_eos=True).tokens


def test_a_fork_shares_and_parts(fresh: Engine) -> None:
    """The same without another seed; with one, what a request with that seed says from there."""
    parent = fresh.submit(Request(SYSTEM[:100], Sampling(temperature=1.0, seed=3), 30, ignore_eos=True))
    while len(parent.generated) < 10:
        fresh.step()
    free = fresh.core.pages.free
    same, other = fresh.fork(parent), fresh.fork(parent, Sampling(temperature=1.0, seed=4))
    assert fresh.core.pages.free == free, "no page was taken"
    assert same.generated == other.generated == parent.generated and same.output.pieces == parent.output.pieces
    run(fresh)
    assert same.generated == parent.generated != other.generated
    assert len(other.generated) == 30 and other.text != parent.text
    begun = [*SYSTEM[:100], *parent.generated[:10]]
    rest = fresh.generate(begun, temperature=1.0, seed=4, max_tokens=20, ignore_eos=True, cache_prompt=False)
    assert other.generated[10:] == rest.tokens
    assert fresh.core.pages.free == fresh.core.pages.total


def test_a_fork_without_a_seed_or_a_place(stories: Path) -> None:
    """A seed that was drawn is inherited; without a free place the fork waits, and is the same."""
    with llamina.load(stories, threads=1, context=128, max_sequences=1) as engine:
        parent = engine.submit(Request([1, 5, 9], Sampling(temperature=1.5), 20, ignore_eos=True))
        for _ in range(4):
            engine.step()
        twin = engine.fork(parent)
        assert twin in engine.core.waiting
        run(engine)
        assert twin.generated == parent.generated


def test_what_cannot_be_forked(fresh: Engine) -> None:
    done = fresh.submit(Request([1, 2], max_tokens=1))
    run(fresh)
    with pytest.raises(RequestError, match="is done"):
        fresh.fork(done)
    with pytest.raises(RequestError, match="makes no tokens"):
        fresh.fork(fresh.submit(Request([1, 2], reads=range(2))))


def test_a_rewound_stream_tells_the_new_text(fresh: Engine) -> None:
    """What is generated from then on; what was put there is part of the whole alone."""
    stream = fresh.stream("Once upon a time", temperature=0, max_tokens=20)
    while len(stream.sequence.generated) < 12:
        next(stream)
    before = list(stream.sequence.output.pieces)
    fresh.rewind(stream.sequence, 6, fresh.encode("The", add_special=False))
    *kept, put = stream.sequence.output.pieces
    assert before[: len(kept)] == kept and len(kept) < len(before) - 1 and put == " The"
    rest = "".join(map(str, stream))
    assert stream.result().text == "".join(kept) + put + rest and len(stream.result().tokens) == 20
    prompt = [*stream.sequence.request.prompt, *stream.sequence.generated[:7]]
    assert fresh.generate(prompt, temperature=0, max_tokens=13).text == rest


def test_rewinding_nothing_but_going_on(fresh: Engine) -> None:
    """A request that was done goes on after tokens that others put there: the next turn of a conversation."""
    sequence = fresh.submit(Request(SYSTEM[:50], Sampling(temperature=0), 30, stop=["zzzz"], ignore_eos=True))
    for _ in range(4):
        fresh.step()
    fresh.cancel(sequence)
    fresh.rewind(sequence, 0, [7, 8])
    assert sequence.finish_reason is None and sequence in fresh.core.waiting
    run(fresh)
    prompt = [*SYSTEM[:50], *sequence.generated[:6]]
    assert sequence.generated[6:] == fresh.generate(prompt, **GREEDY | {"max_tokens": 24}).tokens


def test_after_a_stop_string(fresh: Engine) -> None:
    stream = fresh.stream("Once upon a time", temperature=0, max_tokens=40, stop=["Lily"])
    text = stream.result().text
    assert stream.sequence.finish_reason == "stop" and "Lily" not in text
    fresh.rewind(stream.sequence, 2, fresh.encode("Tim", add_special=False))
    run(fresh)
    assert "Tim" in stream.sequence.text and "Lily" not in stream.sequence.text


@pytest.mark.parametrize(
    ("n", "tokens", "param"), [(-1, [], "n"), (6, [], "n"), (2, [512], "tokens"), (1, [1] * 40, "tokens")]
)
def test_impossible_rewinds(stories: Path, n: int, tokens: list[int], param: str) -> None:
    with llamina.load(stories, threads=1, context=40) as engine:
        sequence = engine.submit(Request([1, 2, 3], Sampling(temperature=0), 20, ignore_eos=True))
        while len(sequence.generated) < 5:
            engine.step()
        known = list(sequence.known)
        with pytest.raises(RequestError) as caught:
            engine.rewind(sequence, n, tokens)
        assert caught.value.param == param and sequence.known == known
        with pytest.raises(RequestError, match="max_tokens is 20"):
            engine.rewind(sequence, 0, [1] * 15)


def test_context_shift(stories: Path) -> None:
    """Half of what follows the kept tokens goes whenever the context is full; what comes then is what a new request
    with the remaining tokens would say."""
    with llamina.load(stories, threads=1, context=48) as engine:
        prompt = [1, *range(10, 30)]
        sequence = engine.submit(
            Request(prompt, Sampling(temperature=0), 120, ignore_eos=True, context_shift=True, n_keep=5)
        )
        shifts = 0
        while sequence.finish_reason is None:
            dropped = sequence.dropped
            engine.step()
            if sequence.dropped > dropped:
                shifts += 1
                assert sequence.known[:5] == prompt[:5] and len(sequence.known) == 5 + 22
                known = list(sequence.known)
                made = len(sequence.generated)
        assert shifts > 3 and len(sequence.generated) == 120 and sequence.finish_reason == "length"
        rest = engine.generate(known, temperature=0, max_tokens=120 - made, ignore_eos=True, cache_prompt=False)
        assert sequence.generated[made:] == rest.tokens
        assert engine.core.pages.free == engine.core.pages.total
        with pytest.raises(RequestError, match="knows"):
            engine.rewind(sequence, 100)


def test_bos_is_never_dropped(stories: Path) -> None:
    with llamina.load(stories, threads=1, context=32) as engine:
        sequence = engine.submit(Request([1, 5, 6], Sampling(temperature=0), 60, ignore_eos=True, context_shift=True))
        run(engine)
        assert sequence.known[0] == 1 == engine.tokenizer.bos and sequence.dropped


def test_truncation(stories: Path) -> None:
    """Only when it is asked for; the first tokens stay if they are to be kept."""
    with llamina.load(stories, threads=1, context=32) as engine:
        prompt = [1, *range(10, 60)]
        with pytest.raises(ContextTooLong, match="truncate"):
            engine.generate(prompt)
        sequence = engine.submit(Request(prompt, Sampling(temperature=0), 3, ignore_eos=True, truncate=True, n_keep=4))
        assert sequence.known == [*prompt[:4], *prompt[4 + 23 :]] and sequence.dropped == 23
        run(engine)
        rest = [*prompt[:4], *prompt[4 + 23 :]]
        assert sequence.generated == engine.generate(rest, temperature=0, max_tokens=3, ignore_eos=True).tokens


@pytest.mark.parametrize("n_keep", [-1, 30, 1.5, "all"])
def test_impossible_n_keep(stories: Path, n_keep: object) -> None:
    with llamina.load(stories, threads=1, context=32) as engine:
        for option in ("truncate", "context_shift"):
            with pytest.raises(RequestError) as caught:
                engine.generate([1, 2], n_keep=n_keep, **{option: True})
            assert caught.value.param == "n_keep" and not engine.core.waiting


def test_chat_turns(smol: Engine) -> None:
    """A conversation through the chat template: each turn finds the ones before."""
    messages = [{"role": "user", "content": "What is the capital of Japan? Answer in one sentence, please."}]
    answer = smol.chat(messages, temperature=0, max_tokens=20)
    messages += [{"role": "assistant", "content": answer.text}, {"role": "user", "content": "And of France?"}]
    second = smol.chat(messages, temperature=0, max_tokens=8)
    assert second.usage.cached_tokens >= answer.usage.prompt_tokens
    assert second.tokens == smol.chat(messages, temperature=0, max_tokens=8, cache_prompt=False).tokens
