"""Chat templates that loop or grow: stopped within bounded time, and without the memory they ask for."""

import time

import pytest

from llamina.errors import TemplateError
from llamina.tokenizer import sandbox
from llamina.tokenizer.template import ChatTemplate

LOOPS = {
    "nested loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "loops with a filter": "{% for a in range(99999) %}{% for b in range(99999) if false %}{% endfor %}{% endfor %}",
    "loops without a body": "{% for a in range(99999) %}{% set x = range(99999)|list|sum %}{% endfor %}",
    "macros": "{% macro f(n) %}{% if n %}{% set x = f(n - 1) ~ f(n - 1) %}{% endif %}{% endmacro %}{{ f(80) }}",
    "recursive loops": "{% for x in [1, 1] recursive %}{{ loop([1, 1]) if loop.depth < 60 }}{% endfor %}",
    "shadowed": "{% set tick = 1 %}{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "calls": "{% for a in range(99999) %}{% set x = 'a'.join(['b'] * 99999) %}{% endfor %}",
}
GROWTH = {
    "output": "{% for a in range(99999) %}{{ 'x' * 99999 }}{% endfor %}",
    "text times a number": "{{ 'x' * 10000000000 }}",
    "number times a text": "{{ 10000000000 * 'x' }}",
    "list times a number": "{{ ([1] * 10000000000)|length }}",
    "power": "{{ 10 ** (10 ** 10) }}",
    "power of a power": "{{ ((9 ** 999) ** 999) ** 999 }}",
    "sum": "{% set n = namespace(x='x') %}{% for a in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "concatenation": "{% set n = namespace(x='x') %}{% for a in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "captured": "{% set x %}{% for a in range(99999) %}{{ 'x' * 99999 }}{% endfor %}{% endset %}{{ x|length }}",
    "of a macro": "{% macro f() %}{% for a in range(99999) %}{{ 'x' * 99999 }}{% endfor %}{% endmacro %}{{ f() }}",
    "center": "{{ 'x'|center(10000000000)|length }}",
    "center as a method": "{{ 'x'.center(10000000000)|length }}",
    "format": "{{ '%10000000000d' % 1 }}",
    "format as a filter": "{{ '%*d'|format(10000000000, 1) }}",
    "batch": "{{ [1]|batch(10000000000, 'x')|list|length }}",
    "lipsum": "{{ lipsum(100000) }}",
    "a range": "{{ range(10000000000)|list|length }}",
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops_are_stopped(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MAX_SECONDS", 0.3)
    started = time.thread_time()
    with pytest.raises(TemplateError, match="takes too long") as caught:
        ChatTemplate(LOOPS[name]).render([])
    assert caught.value.param == "messages" and time.thread_time() - started < 3


@pytest.mark.parametrize("name", GROWTH)
def test_growth_is_stopped(name: str) -> None:
    started = time.thread_time()
    with pytest.raises(TemplateError):
        ChatTemplate(GROWTH[name]).render([])
    assert time.thread_time() - started < 4


def test_what_is_within_the_bounds_is_as_it_was() -> None:
    template = (
        "{% for m in messages %}{{ m.content ~ 1 ~ none ~ '-' * 3 + 'x' }}{{ '%05d' % 7 }}{{ 2 ** 8 }}{% endfor %}"
    )
    assert ChatTemplate(template).render([{"content": "a"}]) == "a1None---x00007256"
    assert ChatTemplate("{{ 'x'|center(5) }}|{{ [1, 2]|join(', ') }}").render([]) == "  x  |1, 2"


def test_a_text_over_the_bound_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MAX_SIZE", 10)
    with pytest.raises(TemplateError, match="larger than 10"):
        ChatTemplate("{{ messages[0].content }}{{ messages[0].content }}").render([{"content": "123456"}])
