"""`ignore_eos`: a generation that goes on after its end."""

import pytest

from llamina import Engine
from llamina.errors import RequestError


def test_a_generation_goes_on_after_its_end(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    free = engine.generate("Once upon a time", max_tokens=6, temperature=0)
    monkeypatch.setattr(engine.tokenizer, "eog", frozenset({free.tokens[2], free.tokens[-1]}))
    ended = engine.generate("Once upon a time", max_tokens=6, temperature=0)
    assert ended.tokens == free.tokens[:2] and ended.finish_reason == "stop"
    whole = engine.generate("Once upon a time", max_tokens=6, temperature=0, ignore_eos=True)
    assert whole.tokens == free.tokens and whole.finish_reason == "length"


def test_it_is_among_the_known_options(engine: Engine) -> None:
    with pytest.raises(RequestError, match="ignore_eos"):
        engine.generate("x", ignore_eoz=True)
