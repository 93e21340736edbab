"""What may be given, in which form; what is refused, in which words; what type checkers see."""

import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llamina
from llamina import Engine, Sampling
from llamina.engine.options import ChatOptions, GenerateOptions, LoadOptions, SamplingOptions, StreamOptions
from llamina.engine.request import OPTIONS, SAMPLING, Request
from llamina.engine.runner.load import BEFORE
from llamina.engine.runner.model_runner import ModelRunner
from llamina.engine.tasks.beam import SEARCH
from llamina.engine.tasks.chat import SETTINGS, ChatSettings, conversation
from llamina.errors import RequestError
from llamina.models import RopeOverrides

GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 8}


def test_options_are_the_fields() -> None:
    """Type checkers see what the dataclasses have, with the same types."""
    assert SamplingOptions.__optional_keys__ == SAMPLING
    assert StreamOptions.__optional_keys__ == SAMPLING | OPTIONS | {"on_delta"}
    assert GenerateOptions.__optional_keys__ - StreamOptions.__optional_keys__ == {"n", "best_of", *SEARCH} - {
        "max_tokens"
    }
    assert ChatOptions.__optional_keys__ - StreamOptions.__optional_keys__ == SETTINGS
    hints = typing.get_type_hints(StreamOptions) | typing.get_type_hints(ChatOptions)
    for owner in (Sampling, Request, ChatSettings):
        for name, kind in typing.get_type_hints(owner).items():
            if name in hints:
                assert hints[name] == kind, name
    loading = typing.get_type_hints(ModelRunner.__init__) | typing.get_type_hints(RopeOverrides)
    for name, kind in typing.get_type_hints(LoadOptions).items():
        assert name in BEFORE or loading[name] == kind, name


def test_a_type_checker_sees_misspelt_options(tmp_path: Path) -> None:
    """mypy on a caller: the right call passes, each wrong line is found."""
    lines = [
        "import llamina",
        "engine = llamina.load('x.gguf', kv_type='f16')",
        "engine.generate('a', temperature=0.5, stop='b').text",
        "engine.generate(['a', 'b'])[0].text",
        "engine.chat('hi', tools=[])",
        "engine.generate('a', temprature=1)",
        "engine.stream('a', top_k='many')",
        "engine.chat('a', toolz=[])",
        "llamina.load('x.gguf', n_ctx=512)",
    ]
    path = tmp_path / "caller.py"
    path.write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(path)]
    told = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False).stdout
    assert [f":{n}:" in told for n in range(1, len(lines) + 1)] == [False] * 5 + [True] * 4, told


def test_public_names() -> None:
    assert {"load", "Engine", "AsyncEngine", "Delta"} <= set(dir(llamina))


def test_several_prompts(engine: Engine) -> None:
    texts = ["Once", "The dog", "Lily"]
    expected = [engine.generate(text, **GREEDY).tokens for text in texts]
    assert [c.tokens for c in engine.generate(texts, **GREEDY)] == expected
    assert [c.tokens for c in engine.generate([engine.encode(t) for t in texts], **GREEDY)] == expected
    many = engine.generate(texts * 40, **GREEDY)
    assert [c.tokens for c in many] == expected * 40


def test_stop_as_a_text(engine: Engine) -> None:
    whole = engine.generate("Once upon a time", temperature=0, max_tokens=60).text
    one = engine.generate("Once upon a time", temperature=0, max_tokens=60, stop="Lily")
    assert one.text == whole[: whole.index("Lily")] and one.finish_reason == "stop"


def test_logits_of_a_text(engine: Engine) -> None:
    assert np.array_equal(engine.logits("Once upon"), engine.logits(engine.encode("Once upon")))


@pytest.mark.parametrize(
    ("call", "message", "param"),
    [
        (lambda e: e.generate(b"x"), "bytes", "prompt"),
        (lambda e: e.generate([1.5]), "1.5", "prompt"),
        (lambda e: e.generate([True]), "True", "prompt"),
        (lambda e: e.generate(5), "5", "prompt"),
        (lambda e: e.generate("a", stop=3), "stop is 3", "stop"),
        (lambda e: e.generate("a", stop=[""]), "stop", "stop"),
        (lambda e: e.generate("a", ignore_eos=1), "must be True or False", "ignore_eos"),
        (lambda e: e.generate("a", max_new_tokens=5), "did you mean max_tokens", "max_new_tokens"),
        (lambda e: e.generate("a", temp=1), "did you mean temperature", "temp"),
        (lambda e: e.generate("a", on_delta=3), "on_delta", "on_delta"),
        (lambda e: e.chat(3), "messages is 3", "messages"),
        (lambda e: e.chat(["hi"]), "role", "messages"),
        (lambda e: e.chat([{"role": "user", "content": [{"type": "image_url"}]}]), "image_url", "messages"),
    ],
)  # fmt: skip
def test_what_is_refused(smol: Engine, call: Any, message: str, param: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        call(smol)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_ctx": 512}, "did you mean context"),
        ({"threads": "2"}, "threads is '2'"),
        ({"threads": 0}, "threads is 0"),
        ({"context": 1.5}, "context is 1.5"),
        ({"max_tokens": 5}, "unknown option max_tokens"),
        ({"max_sequences": "4"}, "max_sequences is '4'"),
        ({"kv_type": "f8"}, "kv_type"),
        ({"kv_type": "fp8", "backend": "cpu"}, "with backend='cpu' it must be f16 or f32 or bf16 or q8_0 or q4_0"),
        ({"stream": 7, "backend": "cpu"}, "the cpu backend has no option 'stream'"),
    ],
)
def test_what_cannot_be_loaded_so(stories: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        llamina.load(stories, **options)


def test_conversations_in_other_forms(smol: Engine) -> None:
    """A text alone, and OpenAI's text parts, are the same conversation."""
    plain = [{"role": "user", "content": "Say hi"}]
    parts = [{"role": "user", "content": [{"type": "text", "text": "Say"}, {"type": "text", "text": " hi"}]}]
    assert conversation("Say hi") == conversation(plain) == conversation(parts) == plain
    answers = {smol.chat(messages, **GREEDY).text for messages in ("Say hi", plain, parts)}
    assert len(answers) == 1


def test_the_seed_is_told(engine: Engine) -> None:
    drawn = engine.generate("Once", temperature=1.0, max_tokens=12)
    assert drawn.seed is not None
    assert engine.generate("Once", temperature=1.0, max_tokens=12, seed=drawn.seed).tokens == drawn.tokens
