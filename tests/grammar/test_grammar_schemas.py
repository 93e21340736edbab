"""JSON schemas: the standard's own test suite, and answers at random that must be valid."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from grammar_facts import takes

from llamina import Tokenizer
from llamina.errors import InvalidGrammar
from llamina.grammar import source
from llamina.grammar.compiler import Compiler

CASES = json.loads((Path(__file__).parent / "data" / "json_schema_suite.json").read_text(encoding="utf-8"))
KEYWORDS = sorted({case["keyword"] for case in CASES})

# Dates and times that only a calendar could tell from good ones.
CALENDAR = {"format: date", "format: date-time", "format: time"}


@pytest.mark.parametrize("keyword", KEYWORDS)
def test_the_suite(compiler: Compiler, tokenizer: Tokenizer, keyword: str) -> None:
    """Nothing invalid is ever taken; what is valid is, unless it is spelt in another way than ours."""
    for case in (case for case in CASES if case["keyword"] == keyword):
        if case.get("refused"):
            with pytest.raises(InvalidGrammar, match="json_schema"):
                compiler.constraint(source(json_schema=case["schema"]))  # type: ignore[arg-type]
            continue
        for value, valid in case["tests"]:
            text = json.dumps(value, ensure_ascii=False)
            found = takes(compiler, tokenizer, text, json_schema=case["schema"])
            if found != valid:
                assert _may_differ(keyword, case["schema"], value, valid), (case["schema"], text, valid)


def _may_differ(keyword: str, schema: Any, value: Any, valid: bool) -> bool:
    if not valid:
        return keyword in CALENDAR and (":60" in value or value.endswith("02-29"))
    if keyword in ("format: email", "format: ipv6"):
        return '"' in value or "IPv6" in value or "." in value  # rare ways to write them
    whole = isinstance(value, float) and value.is_integer()  # 1.0 where 1 is meant
    return whole or value == [0.0] or value == [1.0] or isinstance(value, dict)  # properties in another order


SCHEMAS: dict[str, dict[str, Any]] = {
    "anything": {},
    "object": {"type": "object"},
    "person": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 20},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "mail": {"type": "string", "format": "email"},
            "tags": {"type": "array", "items": {"enum": ["a", "b", "c d"]}, "maxItems": 4},
            "kind": {"const": "person"},
        },
        "required": ["name", "age", "kind"],
        "additionalProperties": False,
    },
    "tree": {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "value": {"type": "number"},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2},
                },
                "required": ["value"],
                "additionalProperties": False,
            }
        },
    },
    "choice": {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^[a-f]{3,5}$"}, {"type": "null"}]},
    "tuple": {"type": "array", "prefixItems": [{"type": "boolean"}, {"type": "string"}], "items": False, "minItems": 2},
    "dates": {"type": "array", "items": {"type": "string", "format": "date-time"}, "minItems": 1, "maxItems": 3},
    "patterns": {"type": "object", "patternProperties": {"^x-": {"type": "integer"}}, "additionalProperties": False},
}


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("seed", range(6))
def test_random_answers_are_valid(compiler: Compiler, tokenizer: Tokenizer, name: str, seed: int) -> None:
    """Logits at random under the mask: whenever the grammar lets the answer end, it is valid JSON of the schema."""
    constraint = compiler.constraint(source(json_schema=SCHEMAS[name]))  # type: ignore[arg-type]
    rng, tokens = np.random.default_rng(seed), []
    closing = np.zeros(tokenizer.vocab_size, np.float32)
    for text in ("}", "]", '"', "]}", "}}", '"}', '"]'):
        closing[tokenizer.encode(text)[-1]] = 1
    (end,) = tokenizer.eog
    closing[end] = 1
    for n in range(400):
        logits = rng.normal(0, 1, tokenizer.vocab_size).astype(np.float32) + closing * n / 8
        constraint.apply(logits)
        assert logits.max() > -np.inf
        assert (logits[end] > -np.inf) == constraint.accepting
        token = int(logits.argmax())
        if token == end:
            break
        constraint.consume(token)
        tokens.append(token)
        if constraint.done:
            break
    else:
        pytest.fail("an answer without end")
    jsonschema.validate(json.loads(tokenizer.decode(tokens)), SCHEMAS[name])


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("{", "not JSON"),
        ("[]", "must be an object"),
        (5, "must be an object"),
        (False, "must be an object"),
        ({"a": math.nan.__class__}, "not JSON"),
        ({"type": "strin"}, "Invalid type: strin"),
        ({"$ref": "#/no/where"}, "does not exist"),
        ({"$ref": "https://example.org/schema"}, "not present"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"type": "string", "pattern": "a(?=b)"}, "look-around"),
        ({"type": "integer", "minimum": 5, "maximum": 2}, "greater than maximum"),
        ({"oneOf": [{"type": "object"}, {"type": "object"}]}, '"x-guidance": {"coerce_one_of": true}'),
    ],
    ids=str,
)
def test_schemas_that_are_refused(compiler: Compiler, schema: Any, message: str) -> None:
    with pytest.raises(InvalidGrammar) as caught:
        compiler.constraint(source(json_schema=schema))  # type: ignore[arg-type]
    assert message in str(caught.value) and caught.value.param == "json_schema" and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "uniqueItems": False, "maxItems": 2.0},
        {"type": "array", "items": {"type": "integer", "not": False}, "unevaluatedItems": True, "maxItems": 2},
        {"type": "array", "maxItems": 2, "if": {"minItems": 1}, "minContains": 1},
        {"type": "array", "maxItems": 2, "then": {"minItems": 5}, "dependentRequired": {}, "propertyNames": {}},
    ],
    ids=str,
)
def test_keywords_that_say_nothing_are_no_reason_to_refuse(
    compiler: Compiler, tokenizer: Tokenizer, schema: dict[str, Any]
) -> None:
    for text in ("[]", "[1, 1]", "[1, 2, 3]", "1"):
        valid = jsonschema.Draft202012Validator(schema).is_valid(json.loads(text))
        assert takes(compiler, tokenizer, text, json_schema=schema) == valid


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"uniqueItems": True}, "uniqueItems"),
        ({"if": {"minItems": 1}, "then": {"maxItems": 3}}, "if"),
        ({"contains": {"const": 1}}, "contains"),
        ({"const": {"not": False}, "properties": {"a": {"unevaluatedProperties": False}}}, "unevaluatedProperties"),
        ({"allOf": [{"not": {"type": "string"}}]}, "not"),
        ({"items": [{"dependentRequired": {"a": ["b"]}}]}, "dependentRequired"),
    ],
    ids=str,
)
def test_keywords_that_cannot_be_kept_are_named(compiler: Compiler, schema: dict[str, Any], keyword: str) -> None:
    with pytest.raises(InvalidGrammar, match=f'"{keyword}"'):
        compiler.constraint(source(json_schema=schema))  # type: ignore[arg-type]


def test_the_way_out_works(compiler: Compiler, tokenizer: Tokenizer) -> None:
    schema = {"oneOf": [{"type": "object"}, {"type": "object"}], "x-guidance": {"coerce_one_of": True}}
    assert takes(compiler, tokenizer, "{}", json_schema=schema)


def test_a_schema_as_text_or_value(compiler: Compiler, tokenizer: Tokenizer) -> None:
    for schema in ('{"type": "integer"}', {"type": "integer"}):
        assert takes(compiler, tokenizer, "12", json_schema=schema)
        assert not takes(compiler, tokenizer, "x", json_schema=schema)
    assert takes(compiler, tokenizer, "[1, {}]", json_schema=True)


def test_blanks_come_to_an_end(compiler: Compiler, tokenizer: Tokenizer) -> None:
    """A model that likes blanks must go on after some."""
    assert takes(compiler, tokenizer, '{\n    "a": [1, 2]\n}', json_schema={"type": "object"})
    assert not takes(compiler, tokenizer, "{" + "\n" * 30 + "}", json_schema={"type": "object"})


def test_another_vocabulary(sentencepiece: Tokenizer, golden: Callable[[str], Path]) -> None:
    """SentencePiece: tokens that begin with a space, and bytes as tokens."""
    compiler = Compiler(sentencepiece, sentencepiece.vocab_size)
    assert takes(compiler, sentencepiece, '{"name": "Zoë 😀", "n": -1.5e3}', json_schema={"type": "object"})
    assert not takes(compiler, sentencepiece, '{"name" "Zoë"}', json_schema={"type": "object"})
    assert takes(compiler, sentencepiece, "日本語です", grammar="root ::= [ぁ-ゟ一-鿿]+")
    constraint = compiler.constraint(source(regex='\\{"alpha": [0-9]'))  # type: ignore[arg-type]
    assert sentencepiece.decode(constraint.forced(), continued=True).startswith('{"alpha":')
