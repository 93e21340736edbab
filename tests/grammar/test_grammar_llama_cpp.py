"""Texts that llama.cpp's own tests accept and reject, said with the tokens of a real vocabulary."""

import json
from pathlib import Path
from typing import Any

import pytest
from grammar_facts import takes

from llamina import Tokenizer
from llamina.errors import InvalidGrammar
from llamina.grammar.compiler import Compiler

CASES = json.loads((Path(__file__).parent / "data" / "llama_cpp.json").read_text(encoding="utf-8"))

# llama.cpp takes these to be wrong, the standard does not: integers may be long, `items` says nothing about what is
# no array, and other properties are welcome unless they are forbidden.
VALID = {
    "min 0": "100000000000000000000000000000000",
    "min 2": "12345678900000000",
    "min+max items": "1",
    "object properties": '{ "number": 1600, "street_name": "Pennsylvania", "street_type":"Avenue", "direction":"NW"}',
}
REFUSED = {"required props": "uniqueItems"}  # rather than followed in part


@pytest.mark.parametrize("case", CASES, ids=[f"{case['kind']}: {case['name']}" for case in CASES])
def test_case(compiler: Compiler, tokenizer: Tokenizer, case: dict[str, Any]) -> None:
    constraint = {"grammar" if case["kind"] == "grammar" else "json_schema": case["text"]}
    if case["name"] in REFUSED:
        with pytest.raises(InvalidGrammar, match=REFUSED[case["name"]]):
            takes(compiler, tokenizer, "", **constraint)
        return
    for text in case["accepted"]:
        assert takes(compiler, tokenizer, text, **constraint), text
    for text in case["rejected"]:
        expected = VALID.get(case["name"]) == text
        assert takes(compiler, tokenizer, text, **constraint) == expected, text
