"""Answers that must be calls: whatever their grammar allows is a call that the parser finds."""

import json
import random
import re
from typing import Any, Literal

import llguidance
import pytest
from chat_cases import Case, collected, events, tool

from llamina.chat import FORMATS, Format, Tools
from llamina.chat.tool_choice import call_grammar, chosen
from llamina.errors import RequestError

DIGIT = {"type": "integer", "minimum": 0, "maximum": 9}
CITY = {"type": "string", "enum": ["Oslo", "São Paulo"]}
TOOLS = Tools(
    [
        tool("add", a=DIGIT, b=DIGIT, required=["b"]),
        tool("weather", city=CITY, days=DIGIT, tags={"type": "array", "items": DIGIT, "maxItems": 2}, required=[]),
        tool("now"),
    ]
)
CONTROL = (
    "<file_sep>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "<|python_tag|>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁sep｜>",
    "<escape>",
)
NAMES = [*FORMATS, "own"]


def format_named(name: str) -> Format:
    from llamina.chat import choose

    return choose("", ("<file_sep>", "]]") if name == "own" else name)


class Bytes(llguidance.TokenizerWrapper):
    """A token for each byte, and control tokens for some markers."""

    is_tokenizer_wrapper = True

    def __init__(self) -> None:
        self.tokens = [bytes([i]) for i in range(256)] + [b"\xff<end>"] + [b"\xff" + c.encode() for c in CONTROL]
        self.special_token_ids = list(range(256, len(self.tokens)))
        self.eos_token_id, self.bos_token_id = 256, None

    def __call__(self, text: str) -> list[int]:
        return list(text.encode())


WORDS = llguidance.LLTokenizer(Bytes(), n_vocab=257 + len(CONTROL))
IDS = {text: 257 + i for i, text in enumerate(CONTROL)}
MARKS = re.compile("(" + "|".join(map(re.escape, CONTROL)) + ")")


def matcher(
    format: Format, tools: Tools = TOOLS, thinks: Literal["no", "may", "must"] = "may", parallel: bool = False
) -> Any:
    tokens = {marker: IDS[marker] for marker in format.markers if marker in IDS}
    grammar = call_grammar(format, tools, tokens, thinks, parallel)
    found = llguidance.LLMatcher(WORDS, llguidance.LLMatcher.grammar_from_lark(grammar), log_level=0)
    assert not found.is_error(), found.get_error()
    return found


def allowed(matcher: Any) -> list[int]:
    mask = matcher.compute_bitmask()
    return [i for i in range(257 + len(CONTROL)) if mask[i // 8] >> i % 8 & 1]


def walk(matcher: Any, draw: random.Random) -> str:
    """Some answer that the grammar allows, as text; white space is no fun."""
    said = b""
    while not matcher.is_stopped():
        choices = allowed(matcher)
        token = draw.choice([c for c in choices if c not in (9, 10, 13, 32)] or choices)
        assert matcher.consume_token(token)
        said += b"" if token == 256 else CONTROL[token - 257].encode() if token > 256 else bytes([token])
        assert len(said) < 2000
    return said.decode()


def accepts(matcher: Any, text: str) -> bool:
    parts = [[IDS[part]] if part in IDS else list(part.encode()) for part in MARKS.split(text)]
    tokens = [token for part in parts for token in part]
    return bool(matcher.validate_tokens([*tokens, 256]) == len(tokens) + 1)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_allowed_is_a_call(name: str) -> None:
    format = format_named(name)
    draw = random.Random(name)
    seen = set()
    for _ in range(12):
        answer = walk(matcher(format, thinks="no"), draw)
        found = collected(events(format, [answer], tools=TOOLS))
        assert found.text.strip() == "" and len(found.tool_calls) == 1, answer
        call = found.tool_calls[0]
        seen.add(call.name)
        arguments = json.loads(call.arguments)
        schema = TOOLS.parameters(call.name)
        assert set(schema["required"]) <= arguments.keys() <= set(schema["properties"]), answer
        assert arguments.get("city", "Oslo") in CITY["enum"] and arguments.get("days", 1) in range(10)
    assert seen <= {"add", "weather", "now"} and len(seen) > 1


TEXTS = [
    Case(
        "qwen3-coder", "<tool_call>\n<function=say>\n<parameter=text>\na\n</b>\n</parameter>\n</function>\n</tool_call>"
    ),
    Case("functiongemma", "<start_function_call>call:say{text:<escape>a\n</b><escape>}<end_function_call>"),
    Case("hermes", '<tool_call>\n{"name": "say", "arguments": {"text": "a\\n</b>"}}\n</tool_call>'),
    Case("mistral-args", '[TOOL_CALLS]say[ARGS]{"text": "a\\n</b>"}'),
    Case("gemma", '```tool_code\nsay(text="a\\n</b>")\n```'),
    Case("harmony", '<|channel|>commentary to=functions.say <|constrain|>json<|message|>{"text": "a\\n</b>"}'),
    Case("glm", "<tool_call>say\n<arg_key>text</arg_key>\n<arg_value>a\n</b></arg_value>\n</tool_call>"),
]


@pytest.mark.parametrize("case", TEXTS, ids=str)
def test_strings_are_free(case: Case) -> None:
    tools = Tools([tool("say", text={"type": "string"})])
    assert accepts(matcher(FORMATS[case.format], tools), case.answer)
    (call,) = collected(events(FORMATS[case.format], [case.answer], tools=tools)).tool_calls
    assert json.loads(call.arguments) == {"text": "a\n</b>"}


def test_reasoning_comes_first() -> None:
    call = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    free, opened = matcher(FORMATS["hermes"]), matcher(FORMATS["hermes"], thinks="must")
    assert accepts(free, call) and accepts(free, f"<think>\nso <tool_call>\n</think>\n\n{call}")
    assert not accepts(free, f"so {call}") and not accepts(free, "so") and not accepts(free, call + call)
    assert accepts(opened, f"so\n</think>\n\n{call}") and not accepts(opened, call)
    many = matcher(FORMATS["hermes"], parallel=True)
    assert accepts(many, call) and accepts(many, f"{call}\n{call}") and not accepts(many, "")
    harmony = matcher(FORMATS["harmony"])
    said = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant"
    assert accepts(harmony, said + "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}")


NOW, ADD = '{"name": "now", "arguments": {}}', '{"name": "add", "arguments": {"b": 1}}'
SEVERAL = [
    Case("mistral", f"[TOOL_CALLS][{NOW}, {ADD}]"),
    Case("hermes", f"<tool_call>\n{NOW}\n</tool_call>\n<tool_call>\n{ADD}\n</tool_call>"),
    Case(
        "deepseek-v3.1",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
        '<｜tool▁call▁begin｜>add<｜tool▁sep｜>{"b": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    ),
    Case("gemma", "```tool_code\nnow()\nadd(b=1)\n```"),
    Case("lfm2", "<|tool_call_start|>[now(), add(b=1)]<|tool_call_end|>"),
    Case(
        "minimax",
        '<minimax:tool_call>\n<invoke name="now">\n</invoke>\n<invoke name="add">\n'
        '<parameter name="b">\n1\n</parameter>\n</invoke>\n</minimax:tool_call>',
    ),
]


@pytest.mark.parametrize("case", SEVERAL, ids=str)
def test_several_calls(case: Case) -> None:
    """As the family writes them, and only where they may be several."""
    format = FORMATS[case.format]
    assert accepts(matcher(format, parallel=True), case.answer) and not accepts(matcher(format), case.answer)
    calls = collected(events(format, [case.answer], tools=TOOLS)).tool_calls
    assert [(call.name, json.loads(call.arguments)) for call in calls] == [("now", {}), ("add", {"b": 1})]


def test_choices() -> None:
    assert [*chosen(TOOLS, "auto")[0]] == ["add", "weather", "now"] and not chosen(TOOLS, "auto")[1]
    assert len(chosen(TOOLS, "none")[0]) == 0 and not chosen(Tools(), "auto")[1]
    assert chosen(TOOLS, "required") == (TOOLS, True)
    named, must = chosen(TOOLS, {"type": "function", "function": {"name": "now"}})
    assert [*named] == ["now"] and must
    with pytest.raises(RequestError, match="names 'later': the tools are add, weather, now"):
        chosen(TOOLS, {"name": "later"})
