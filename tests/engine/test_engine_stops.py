"""Where a generation ends, and what of its text is shown."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamina import Engine
from llamina.engine.stops import StopStrings
from llamina.errors import RequestError

PROMPT = "Once upon a time"
GREEDY = {"temperature": 0, "max_tokens": 24}  # ", there was a little girl named Lily. She loved to play…"


def cut(text: str, stops: list[str]) -> str:
    """The text before the first place where any stop string is complete."""
    for end in range(len(text) + 1):
        for stop in stops:
            if text[:end].endswith(stop):
                return text[: end - len(stop)]
    return text


@settings(max_examples=300, deadline=None)
@given(
    text=st.text("abc", max_size=30),
    stops=st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=3),
    sizes=st.lists(st.integers(0, 4), max_size=40),
)
def test_pieces_of_any_size(text: str, stops: list[str], sizes: list[int]) -> None:
    """However the text is cut into pieces, what is shown never has a stop string, nor lacks anything else."""
    found, shown, at = StopStrings(stops), "", 0
    for size in [*sizes, len(text)]:
        piece, at = text[at : at + size], at + size
        shown += found.push(piece)
        assert text.startswith(shown)
        assert not any(stop in shown for stop in stops)
        held = len(text[:at]) - len(shown)
        assert found.hit or held < max(map(len, stops)), "no more is held back than may become a stop string"
    shown += found.flush()
    assert found.hit == any(stop in text for stop in stops)
    if found.hit:
        assert any(text.startswith(shown + stop) for stop in stops)
        assert not any(stop in shown for stop in stops)
    else:
        assert shown == text


@settings(max_examples=200, deadline=None)
@given(text=st.text("ab", max_size=20), stops=st.lists(st.text("ab", min_size=1, max_size=4), min_size=1))
def test_character_by_character_is_the_first_completed(text: str, stops: list[str]) -> None:
    found = StopStrings(stops)
    shown = "".join(found.push(c) for c in text) + found.flush()
    longest = min((s for s in stops if text.startswith(shown + s)), key=len, default="")
    assert shown == text or text.startswith(shown + longest)
    assert len(shown) <= len(text) and (found.hit or shown == text)
    if found.hit:
        assert len(shown) >= len(cut(text, stops)) - max(map(len, stops))


def test_after_a_hit_nothing() -> None:
    stops = StopStrings(["end"])
    assert stops.push("the en") == "the "
    assert stops.push("d of it") == "" and stops.hit
    assert stops.push("more") == "" and stops.flush() == ""


def test_what_was_held_back_comes_out() -> None:
    stops = StopStrings(["ending"])
    assert stops.push("the endi") == "the "
    assert stops.push("vy") == "endivy"
    assert stops.push(" en") == " " and stops.flush() == "en"


@pytest.mark.parametrize("bad", ["", b"word", 5, [""], [1], ["a", None], [b"x"]], ids=repr)
def test_what_is_no_stop_string(bad: object, engine: Engine) -> None:
    with pytest.raises(RequestError) as caught:
        engine.generate(PROMPT, stop=bad)
    assert caught.value.param == "stop"


def test_stop_across_tokens(engine: Engine) -> None:
    """The string spans several tokens, begins and ends within tokens, and none of it is shown."""
    whole = engine.generate(PROMPT, **GREEDY).text
    for first in range(0, 40, 3):
        for length in (1, 2, 5, 13):
            stop = whole[first : first + length]
            expected = whole[: whole.index(stop)]
            assert "".join(map(str, engine.stream(PROMPT, stop=[stop], **GREEDY))) == expected
    result = engine.generate(PROMPT, stop=["girl named Lily"], **GREEDY)
    assert result.text == ", there was a little " and result.finish_reason == "stop"


def test_the_first_of_several(engine: Engine) -> None:
    result = engine.generate(PROMPT, stop=["Lily", "little", "loved", "zebra"], **GREEDY)
    assert result.text == ", there was a " and result.finish_reason == "stop"


def test_held_text_is_flushed(engine: Engine) -> None:
    """Text that could have become a stop string is shown when the generation ends otherwise."""
    whole = engine.generate(PROMPT, **GREEDY)
    held = engine.generate(PROMPT, stop=[whole.text[-6:] + " never"], **GREEDY)
    assert held.text == whole.text and held.finish_reason == "length"
    deltas = list(engine.stream(PROMPT, stop=[whole.text[-6:] + " never"], **GREEDY))
    assert deltas[-1].text.endswith(whole.text[-6:])


def test_a_stop_string_that_never_comes(engine: Engine) -> None:
    assert engine.generate(PROMPT, stop=["xyzzy"], **GREEDY).text == engine.generate(PROMPT, **GREEDY).text


def test_stops_do_not_look_at_the_prompt(engine: Engine) -> None:
    assert engine.generate(PROMPT, stop=["upon", "time"], **GREEDY).finish_reason == "length"


def test_end_of_generation(smol: Engine) -> None:
    result = smol.chat([{"role": "user", "content": "What is the capital of Japan?"}], **GREEDY)
    assert "Tokyo" in result.text and result.finish_reason == "stop"
    assert "<|im_end|>" not in result.text
    assert not set(result.tokens) & set(smol.tokenizer.eog)
    assert smol.tokenizer.decode(result.tokens, continued=True) == result.text
    assert result.usage.completion_tokens == len(result.tokens) + 1, "the end is a token too"
