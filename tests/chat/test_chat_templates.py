"""What templates say about calls, and conversations in the form they want."""

from typing import Any

import pytest

from llamina.chat import FORMATS, Tools, choose, format_of
from llamina.chat.messages import adapted
from llamina.tokenizer import ChatTemplate

SIGNS = {
    "harmony": "{{ '<|channel|>final<|message|>' }}",
    "qwen3-coder": "<tool_call>\n<function={{ name }}>",
    "glm": "<tool_call>{{ name }}\n<arg_key>",
    "hermes": "<tool_call>\n{{ call | tojson }}",
    "deepseek": "<｜tool▁calls▁begin｜> ```json",
    "deepseek-v3.1": "<｜tool▁calls▁begin｜>",
    "mistral": "[TOOL_CALLS][",
    "mistral-args": "[TOOL_CALLS]{{ name }}[ARGS]",
    "llama3": '<|start_header_id|>assistant {"name": "", "parameters": {}}',
    "functiongemma": "<start_function_call>call:",
    "gemma4": "<|tool_call>call:",
    "gemma": "<start_of_turn>model",
    "deepseek-v3.2": "<｜DSML｜function_calls>",
    "deepseek-v4": "<｜DSML｜tool_calls>",
    "apriel": "<tool_calls>[",
    "lfm2": "<|tool_list_start|>",
    "kimi": "<|tool_calls_section_begin|>",
    "generic": "<|im_start|>assistant",
}


@pytest.mark.parametrize(("name", "source"), SIGNS.items(), ids=str)
def test_a_template_says_its_format(name: str, source: str) -> None:
    assert format_of(source).name == name


CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
TALK: list[dict[str, Any]] = [
    {"role": "user", "content": "1 + 1?"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "2", "tool_call_id": "abcdefghi", "name": "add"},
]
TOOLS = Tools([{"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {}}}])
LOOP = "{% if tools %}tools{% endif %}{% for m in messages %}{% for c in m.tool_calls %}ARGS{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    ("way", "objects", "text"),
    [
        ("{{ c.function.arguments | tojson }}", True, '{"a": 1}'),
        ("{{ c.function.arguments }}", False, '{"a": 1}'),
        ("{{ c.function.arguments if c.function.arguments is string else '?' }}", False, '{"a": 1}'),
        (
            "call:add{{ '{' ~ c.function.arguments ~ '}' if c.function.arguments is string else 'a:1' }}",
            True,
            "call:adda:1",
        ),
        ("{% for k, v in c.function.arguments | items %}{{ k }}={{ v }}{% endfor %}", True, "a=1"),
    ],
    ids=str,
)
def test_arguments_as_the_template_wants_them(way: str, objects: bool, text: str) -> None:
    template = ChatTemplate(LOOP.replace("ARGS", way))
    assert template.takes_objects is objects
    for call in (CALL, CALL | {"function": {"name": "add", "arguments": {"a": 1}}}):
        messages = [TALK[0], TALK[1] | {"tool_calls": [call]}, TALK[2]]
        assert text in template.render(adapted(messages, template, FORMATS["hermes"], TOOLS), TOOLS.described)


def test_a_template_that_knows_no_tools_is_told_in_words() -> None:
    template = ChatTemplate("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}")
    format = choose(template.source, knows_tools=False)
    text = template.render(adapted(TALK, template, format, TOOLS))
    assert text.startswith("[user]You can call functions.") and '"description": "Adds."' in text
    assert '[assistant]<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>' in text
    assert text.endswith("[user]<tool_response>\n2\n</tool_response>")
    assert template.render(adapted(TALK[:1], template, format, Tools())) == "[user]1 + 1?"
    parts = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    assert [part["type"] for part in adapted(parts, template, format, TOOLS)[0]["content"]] == ["text", "text"]


def test_harmony_keeps_its_thoughts_elsewhere() -> None:
    template = ChatTemplate("{% if tools %}{% endif %}{{ messages }}")
    message = TALK[1] | {"reasoning_content": "hm"}
    found = adapted([message], template, FORMATS["harmony"], TOOLS)[0]
    assert found["thinking"] == "hm" and "content" not in found
    assert message["content"] == "", "what was given is not changed"
