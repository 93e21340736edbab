"""Chat templates, with the meaning that Hugging Face gives them."""

from datetime import datetime
from typing import Any

import pytest

from llamina.errors import TemplateError
from llamina.tokenizer import ChatTemplate

CHATML = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message['content'] + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
HEADERS = """\
{{ bos_token }}{% for m in messages %}
{% if loop.first and m.role != 'user' %}{{ raise_exception('must begin with ' ~ 'user') }}{% endif %}
{{ '[' ~ m.role ~ ']' }}{{ m.content | trim }}{{ eos_token }}
{% endfor %}"""
TOOLS = "{% if tools %}{{ tools | tojson }}|{{ tools[0] | tojson(indent=2) }}{% else %}no tools{% endif %}"

HI: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]


def test_chatml() -> None:
    template = ChatTemplate(CHATML)
    assert template.render(HI) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert template.render(HI, add_generation_prompt=False) == "<|im_start|>user\nhi<|im_end|>\n"


def test_blocks_take_their_line_away() -> None:
    template = ChatTemplate(HEADERS, bos_token="<s>", eos_token="</s>")
    assert template.render([{"role": "user", "content": " a "}, {"role": "assistant", "content": "b"}]) == (
        "<s>[user]a</s>\n[assistant]b</s>\n"
    )


def test_a_template_may_refuse() -> None:
    template = ChatTemplate(HEADERS, bos_token="", eos_token="")
    with pytest.raises(TemplateError, match="must begin with user") as caught:
        template.render([{"role": "system", "content": "x"}])
    assert caught.value.param == "messages"


def test_tools_are_json_and_not_html() -> None:
    template = ChatTemplate(TOOLS)
    assert template.render(HI) == template.render(HI, tools=[]) == "no tools"
    assert template.render(HI, tools=[{"name": "<ü> & 'x'"}]) == (
        """[{"name": "<ü> & 'x'"}]|{\n  "name": "<ü> & 'x'"\n}"""
    )
    assert ChatTemplate("{{ x | tojson(separators=(',', ':')) }}").render([], x={"b": 1, "a": 2}) == '{"b":1,"a":2}'


def test_loops_break_and_continue() -> None:
    skip, stop = "{% if i == 1 %}{% continue %}{% endif %}", "{% if i == 4 %}{% break %}{% endif %}"
    source = "{% for i in range(9) %}" + skip + stop + "{{ i }}{% endfor %}"
    assert ChatTemplate(source).render([]) == "023"


def test_generation_blocks_are_part_of_the_text() -> None:
    source = "a{% generation %}{{ messages[0].content }}{% endgeneration %}b"
    assert ChatTemplate(source).render(HI) == "ahib"


def test_keywords_are_variables_and_the_rest_is_undefined() -> None:
    source = "{% if enable_thinking is defined and not enable_thinking %}off{% else %}on{% endif %}{{ nothing }}"
    assert ChatTemplate(source).render(HI) == "on"
    assert ChatTemplate(source).render(HI, enable_thinking=False) == "off"


def test_the_date() -> None:
    assert ChatTemplate("{{ strftime_now('%Y') }}").render([]) == str(datetime.now().year)


def test_nothing_is_escaped_or_changed() -> None:
    assert ChatTemplate("{{ x | safe }}{{ '<' ~ x | safe }}").render([], x="&") == "&<&"
    messages = [{"role": "user", "content": ["a"]}]
    source = "{% set _ = messages[0].content.append('b') %}{{ messages[0].content | length }}"
    template = ChatTemplate(source)
    assert template.render(messages) == template.render(messages) == "2"
    assert messages[0]["content"] == ["a"]


def test_errors_name_the_line() -> None:
    with pytest.raises(TemplateError, match="line 2") as caught:
        ChatTemplate("a\n{% if %}")
    assert caught.value.param == "chat_template"
    with pytest.raises(TemplateError, match="in line 2"):
        ChatTemplate("a\n{{ nothing.at.all }}").render(HI)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.__class__.__base__.__subclasses__() }}",
        "{{ range(10**9) | list }}",
    ],
)
def test_the_sandbox_holds(source: str) -> None:
    with pytest.raises(TemplateError):
        ChatTemplate(source).render(HI)
