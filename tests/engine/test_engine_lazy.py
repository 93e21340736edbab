"""Answers that may call tools: what opens a call becomes one that fits, everything else is left alone."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import jsonschema
import numpy as np
import pytest

from llamina import Engine
from llamina.chat import FORMATS, choose
from llamina.engine.tasks.chat import Turn
from llamina.errors import InvalidGrammar, RequestError
from llamina.grammar import Triggers

ASK = [{"role": "user", "content": "What is the capital of Japan?"}]
WILD: dict[str, Any] = {"temperature": 1.5, "seed": 4, "max_tokens": 120}
DIGIT = {"type": "integer", "minimum": 0, "maximum": 9}
ADD = {
    "name": "add",
    "parameters": {
        "type": "object",
        "properties": {"a": DIGIT, "b": {"enum": ["one", "two"], "type": "string"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
}
BARE = '{"name": "add", "parameters": '
CALL = "<tool_call>"


def saying(engine: Engine, *texts: str) -> Callable[[Sequence[int], Any], Any]:
    """A processor of logits that says the first text first, and each other one after a call has ended."""
    scripts = [engine.tokenizer.encode(text, parse_special=True, continued=True) for text in texts]
    rest: list[int] = scripts.pop(0)

    def process(history: Sequence[int], logits: Any) -> Any:
        if not rest and scripts and engine.tokenizer.decode(history[-12:]).endswith("</tool_call>"):
            rest.extend(scripts.pop(0))
        if rest:
            logits[np.arange(len(logits)) != rest[0]] = -np.inf
            rest.pop(0)
        return logits

    return process


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_opened_becomes_a_call(smol: Engine, name: str) -> None:
    """In every family's way, after text of its own, however wild the draws are."""
    style = choose("", name).styles[0]
    begin = style.trigger or BARE
    said = "" if begin == BARE or name == "harmony" else "Let me see. "
    result = smol.chat(ASK, tools=[ADD], format=name, logits_processor=saying(smol, said + begin), **WILD)
    assert result.text.strip() == said.strip() or result.text.startswith(said)
    call = result.tool_calls[0]
    assert call.name == "add"
    jsonschema.validate(json.loads(call.arguments), ADD["parameters"])


def test_text_is_left_alone(smol: Engine) -> None:
    """Token for token what the model says without any grammar."""
    turn = smol.stream_chat(ASK, tools=[ADD], **WILD)
    request = turn.generation.sequence.request
    free = smol.generate(request.prompt, **WILD)
    assert turn.result().tokens == free.tokens and request.triggers is not None and not turn.result().tool_calls


def test_calls_one_after_the_other(smol: Engine) -> None:
    """With text between them, which may end the answer."""
    process = saying(smol, "First " + CALL, " then " + CALL, " and that is all.<|im_end|>")
    result = smol.chat(ASK, tools=[ADD], logits_processor=process, **WILD)
    assert [call.name for call in result.tool_calls] == ["add", "add"] and result.finish_reason == "stop"
    for call in result.tool_calls:
        jsonschema.validate(json.loads(call.arguments), ADD["parameters"])
    assert result.text == "First then and that is all."


def test_reasoning_opens_nothing(smol: Engine) -> None:
    said = f"<think>A {CALL} might do.</think>No.<|im_end|>"
    result = smol.chat(ASK, tools=[ADD], logits_processor=saying(smol, said), **WILD)
    assert (result.reasoning, result.text) == (f"A {CALL} might do.", "No.")


def test_what_no_grammar_begins_with_stays_text(smol: Engine) -> None:
    """An object that names no tool is an answer; a marker within a word that the grammar does not know is text."""
    said = '{"name": "Tokyo", "parameters": 14}<|im_end|>'
    result = smol.chat(ASK, tools=[ADD], format="llama3", logits_processor=saying(smol, said), **WILD)
    assert result.text == said.removesuffix("<|im_end|>") and not result.tool_calls


def test_guessed_rewound_and_resumed(smol: Engine) -> None:
    """The grammar stands where the tokens are."""
    forced = smol.encode(f"So: {CALL}", add_special=False)

    def opened(**options: Any) -> Turn:
        turn = smol.stream_chat(ASK, tools=[ADD], temperature=0, max_tokens=60, **options)
        sequence = turn.generation.sequence
        while not sequence.generated:
            smol.step()
        smol.rewind(sequence, len(sequence.generated), forced)
        return turn

    turn = opened(speculate="off")
    sequence = turn.generation.sequence
    for _ in range(3):
        smol.step()
    data = smol.snapshot(sequence)
    whole = turn.generation.result()
    assert whole.text.partition(CALL)[2].strip().startswith('{"name": "add", "arguments": {"a": ')
    assert smol.follow(smol.resume(data)).result().tokens == whole.tokens
    assert opened(speculate=4).result().tokens == whole.tokens
    smol.rewind(sequence, len(whole.tokens) - len(forced) - 9)
    assert smol.follow(sequence).result().tokens == whole.tokens


def test_schemas_that_are_no_grammar(smol: Engine) -> None:
    """Names and types are kept to; a strict tool is refused."""
    odd = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}, "required": ["a"]}
    tool = {"name": "odd", "parameters": odd}
    result = smol.chat(ASK, tools=[tool], logits_processor=saying(smol, CALL), **WILD)
    assert isinstance(json.loads(result.tool_calls[0].arguments)["a"], list)
    with pytest.raises(InvalidGrammar, match="uniqueItems"):
        smol.chat(ASK, tools=[{**tool, "strict": True}], **WILD)
    with pytest.raises(InvalidGrammar, match="uniqueItems"):
        smol.chat(ASK, tools=[tool], tool_choice="required", **WILD)


def test_triggers_of_ones_own(engine: Engine) -> None:
    """Any grammar can wait for a text; without one there is nothing to wait for."""
    calm = {**WILD, "temperature": 0.5}
    result = engine.generate(
        "Once upon a time", regex=r"Lily was [0-9]{3} years old\.", triggers=Triggers(["Lily"]), **calm
    )
    free = engine.generate("Once upon a time", **calm)
    at = result.text.find("Lily")
    assert at > 0 and result.text[:at] == free.text[:at]
    assert result.text[at:].startswith("Lily was ") and "years old." in result.text
    assert result.text.partition("years old.")[2], "free again"
    with pytest.raises(RequestError, match="without a grammar"):
        engine.generate("Once", triggers=Triggers(["Lily"]))
