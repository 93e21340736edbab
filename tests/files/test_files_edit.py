"""`llamina edit`: metadata set, removed and renamed; everything else stays as it is."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from llamina.errors import RequestError
from llamina.files import compare, edit
from llamina.files.edit import kind_named, parse_value
from llamina.gguf import GGUF, Kind, ValueType, open_model, tensor_type, write, write_shards

Invoke = Callable[..., Result]


def changed(a: Path, b: Path) -> set[str]:
    """The keys that differ; nothing else may."""
    with GGUF.open(a) as one, GGUF.open(b) as other:
        found = compare(one, other)
        assert not (found.tensors_added or found.tensors_removed or found.types or found.shapes or found.data)
        return {*found.metadata_added, *found.metadata_removed, *found.metadata_changed}


def test_set_remove_and_rename(invoke: Invoke, stories: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    result = invoke(
        "edit", stories, out, "--set", "general.name=a = b", "--set", "llama.context_length=64",
        "--set", "my.flag=true", "--set", "my.sizes=[1, 2]",
        "--set-type", "my.sizes=u16[]", "--set", "my.text=[half", "--set", "my.size=0.5",
        "--remove", "tokenizer.ggml.padding_token_id", "--rename", "tokenizer.ggml.seperator_token_id=my.separator",
    )  # fmt: skip
    assert (result.exit_code, result.stdout) == (0, f"{out}\n"), result.stderr
    assert changed(stories, out) == {
        "general.name", "llama.context_length", "my.flag", "my.sizes", "my.text", "my.size",
        "tokenizer.ggml.padding_token_id", "tokenizer.ggml.seperator_token_id", "my.separator",
    }  # fmt: skip
    with GGUF.open(stories) as old, GGUF.open(out) as new:
        assert new.metadata["general.name"] == "a = b" and new.metadata["my.text"] == "[half"
        assert str(new.metadata_types["my.sizes"]) == "ARRAY[UINT16]"
        assert str(new.metadata_types["my.size"]) == "FLOAT32" and new.metadata["my.flag"] is True
        assert new.metadata["my.separator"] == old.metadata["tokenizer.ggml.seperator_token_id"]
        assert list(new.metadata)[9] == "my.separator", "a renamed key keeps its place"


def test_types(invoke: Invoke, stories: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    assert invoke("edit", stories, out, "--set-type", "llama.context_length=int64").exit_code == 0
    with GGUF.open(out) as file:
        assert file.metadata_types["llama.context_length"] == Kind(ValueType.INT64)
        assert file.metadata["llama.context_length"] == 2048
    for arguments, message in {
        ("--set-type", "llama.context_length=u8"): "llama.context_length holds [2048], which UINT8 cannot",
        ("--set", "llama.context_length=many"): "llama.context_length is UINT32, and 'many' is none",
        ("--set", "llama.context_length=1.5"): "llama.context_length is UINT32, and '1.5' is none",
        ("--set", "llama.context_length=-1"): "llama.context_length holds [-1], which UINT32 cannot",
        ("--set", "llama.context_length=true"): "llama.context_length is UINT32, and 'true' is none",
        ("--set", "tokenizer.ggml.scores=1"): "tokenizer.ggml.scores is ARRAY[FLOAT32], and '1' is none",
        ("--set", 'my.mixed=[1, "a"]'): "my.mixed mixes",
        ("--set-type", "general.name=int7"): "'int7' is no type of metadata: must be one of uint8, ",
        ("--set-type", "my.new=u8"): "my.new gets a type and has no value: set it too",
    }.items():
        result = invoke("edit", stories, out, "--force", *arguments)
        assert result.exit_code == 2 and message in result.stderr, result.stderr


def test_refusals(invoke: Invoke, stories: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    out.write_bytes(b"precious")
    name = ("--set", "general.name=x")
    for arguments, message in {
        (stories, out, *name): "exists: choose another name, or overwrite it (--force)",
        (stories, stories, *name, "--force"): "would be replaced by itself",
        (stories, tmp_path / "none" / "out.gguf", *name): "is not a folder",
        (stories, *name): "give either OUT or --in-place",
        (stories, out, *name, "--in-place"): "give either OUT or --in-place",
        (stories, out): "there is nothing to edit",
        (
            stories,
            out,
            "--force",
            "--remove",
            "general.nam",
        ): "has no metadata key general.nam: did you mean general.name?",
        (stories, out, "--force", "--rename", "general.x=y"): "has no metadata key general.x",
        (stories, out, "--force", "--rename", "general.name=llama.block_count"): "llama.block_count, which is there",
        (stories, out, "--force", *name, "--remove", "general.name"): "general.name is edited twice",
        (stories, out, "--force", "--set", "name"): "'name' is not KEY=VALUE",
        (stories, out, "--force", *name, *name): "general.name is given twice",
        (stories, out, "--force", "--set-file", "a=/no/such/file"): "cannot be read as text",
    }.items():
        result = invoke("edit", *arguments)
        assert result.exit_code == 2 and message in result.stderr, result.stderr
    assert invoke("edit", tmp_path / "none.gguf", out, *name, "--force").exit_code == 3
    assert out.read_bytes() == b"precious" and [path.name for path in tmp_path.iterdir()] == ["out.gguf"]
    with pytest.raises(RequestError, match="give either a file to write or in_place"):
        edit(stories, set={"a": 1})


def test_in_place(invoke: Invoke, stories: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(stories.read_bytes())
    (tmp_path / "t.jinja").write_text("{{ messages }}\nü")
    told = json.loads(
        invoke(
            "edit", path, "--in-place", "--set-file", f"tokenizer.chat_template={tmp_path / 't.jinja'}", "--json"
        ).stdout
    )
    assert told["path"] == str(path) and changed(stories, path) == {"tokenizer.chat_template"}
    with GGUF.open(path) as file:
        assert file.metadata["tokenizer.chat_template"] == "{{ messages }}\nü"
    before = path.read_bytes()

    def stop(*news: object) -> None:
        raise KeyboardInterrupt

    for out in ({"in_place": True}, {"out": tmp_path / "new.gguf"}):
        with pytest.raises(KeyboardInterrupt):
            edit(path, **out, set={"general.name": "new"}, progress=stop)  # type: ignore[arg-type]
        assert sorted(p.name for p in tmp_path.iterdir()) == ["m.gguf", "t.jinja"] and path.read_bytes() == before


def test_versions_and_byte_orders_stay(tmp_path: Path) -> None:
    """Also arrays in arrays, texts that are not UTF-8, empty arrays, and an alignment."""
    metadata: dict[str, Any] = {
        "general.alignment": 64,
        "nested": [np.array([1, 2], np.int16), ["a", "b\udcff"], [["deep"], np.zeros(0, np.int8)]],
        "empty": np.zeros(0, np.uint64),
    }
    data = np.arange(32, dtype="<f4")
    tensors = [("x", (2, 16), tensor_type("F32"), data), ("y", (5,), tensor_type("F16"), bytes(10))]
    for version, order in ((2, "little"), (3, "big")):
        path, out = tmp_path / f"{version}.gguf", tmp_path / f"{version}-out.gguf"
        write(path, metadata, tensors, version=version, byteorder="big" if order == "big" else "little")
        edit(path, out, set={"new": 1})
        with GGUF.open(out) as file:
            assert (file.version, file.byteorder, file.alignment) == (version, order, 64)
        assert changed(path, out) == {"new"}
        edit(out, set={"general.alignment": 32}, remove=["new"], in_place=True)
        assert changed(path, out) == {"general.alignment"} and GGUF.open(out).alignment == 32


def test_the_first_shard_is_edited(stories: Path, tmp_path: Path) -> None:
    with open_model(stories) as file:
        known, kinds = file.metadata, file.metadata_types
        paths = write_shards(tmp_path / "s", known, file.tensors.values(), max_tensors=30, metadata_types=kinds)
    edit(paths[0], set={"general.name": "split"}, in_place=True)
    with open_model(paths[1]) as file:
        assert file.metadata["general.name"] == "split" and len(file.tensors) == 48


def test_names_of_types() -> None:
    for name, kind in {
        "uint8": Kind(ValueType.UINT8), "U64": Kind(ValueType.UINT64), "i16": Kind(ValueType.INT16),
        "f32": Kind(ValueType.FLOAT32), "float": Kind(ValueType.FLOAT32), "str": Kind(ValueType.STRING),
        "bool[]": Kind(ValueType.ARRAY, ValueType.BOOL), "array[string]": Kind(ValueType.ARRAY, ValueType.STRING),
        "ARRAY[INT32]": Kind(ValueType.ARRAY, ValueType.INT32),
    }.items():  # fmt: skip
        assert kind_named(name) == kind
        assert kind_named(str(kind)) == kind
    for name in ("array", "array[]", "", "u7", "int32[", "[]"):
        with pytest.raises(RequestError, match="is no type of metadata"):
            kind_named(name)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-1.5", -1.5),
        ("true", True),
        ("[1, 2]", [1, 2]),
        ("null", "null"),
        ('{"a": 1}', '{"a": 1}'),
        ("", ""),
    ],
)
def test_values_without_a_type(text: str, value: object) -> None:
    found = parse_value("key", text, None)
    assert found == value and type(found) is type(value)
    assert parse_value("key", text, Kind(ValueType.STRING)) == text
