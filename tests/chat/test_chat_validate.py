"""Whether arguments fit: the verdicts are those of the JSON-Schema-Test-Suite."""

import json
from pathlib import Path

import pytest

from llamina.chat.validate import fits, fits_member

SUITE = Path(__file__).parents[1] / "grammar" / "data" / "json_schema_suite.json"
CASES = [case for case in json.loads(SUITE.read_text(encoding="utf-8")) if "tests" in case]
KEYWORDS = sorted({case["keyword"] for case in CASES if not case["keyword"].startswith("format")})  # it says nothing
URIS = ('"$id"', '"$defs": {"":')  # references other than paths in the document: nothing fits what they name


@pytest.mark.parametrize("keyword", KEYWORDS)
def test_the_suite(keyword: str) -> None:
    for case in (case for case in CASES if case["keyword"] == keyword):
        schema = case["schema"]
        unresolved = any(sign in json.dumps(schema) for sign in URIS)
        for value, valid in case["tests"]:
            assert fits(value, schema) == valid or (valid and unresolved), (schema, value)


def test_members_one_by_one() -> None:
    schema = {"properties": {"a": {"type": "integer"}}, "patternProperties": {"^x": {"type": "string"}}}
    assert fits_member("a", 1, schema) and not fits_member("a", "1", schema)
    assert fits_member("xy", "1", schema) and not fits_member("xy", 1, schema)
    assert fits_member("b", None, schema) and not fits_member("b", None, {**schema, "additionalProperties": False})


def test_nothing_fits_a_malformed_schema() -> None:
    assert not fits("a", {"pattern": "("}) and not fits(1, {"minimum": "0"}) and not fits([1], {"$ref": "#/a/b"})
    assert not fits(1, {"$ref": "#"}), "a reference to itself has no end"
