"""`llamina show`, `tokenize`, `detokenize`, `pull`, `list` and `rm`."""

import http.server
import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

from convert.convert_folders import folder
from golden_facts import SPECS
from llamina.convert import convert

Invoke = Callable[..., Result]
TIED = "tied embeddings"
WINDOWS = "sliding window of 8 tokens in 3 of 5 layers"
MOE = "2 of 8 experts in 2 layers"


def test_show(invoke: Invoke, stories: Path) -> None:
    out = invoke("show", stories).stdout
    for line in (
        "architecture    llama",
        "layers          5",
        "runs here       yes",
        "32.00 bits per weight",
    ):
        assert line in out


def test_show_as_json(invoke: Invoke, stories: Path) -> None:
    facts = json.loads(invoke("show", stories, "--json", "--metadata", "--tensors").stdout)
    assert facts["architecture"] == "llama" and facts["parameters"] == 292_800
    assert facts["formats"]["F32"]["tensors"] == len(facts["tensors"]) == 48
    assert facts["vocabulary"]["size"] == 512
    assert facts["metadata"]["tokenizer.ggml.tokens"]["length"] == 512
    assert facts["runs"] is True and facts["reason"] is None


def test_show_lists_abbreviated_metadata_and_tensors(invoke: Invoke, stories: Path) -> None:
    out = invoke("show", stories, "--metadata", "--tensors").stdout
    assert "tokenizer.ggml.tokens" in out and "512 × [" in out and "blk.0.attn_q.weight" in out
    assert max(map(len, out.splitlines())) < 250


def test_show_says_why_a_model_cannot_run(invoke: Invoke, tmp_path: Path) -> None:
    from llamina.gguf import write

    write(tmp_path / "m.gguf", {"general.architecture": "lama"}, [])
    facts = json.loads(invoke("show", tmp_path / "m.gguf", "--json").stdout)
    assert facts["runs"] is False and facts["features"] is None and facts["covers"] is None
    assert re.fullmatch(
        r"architecture 'lama' is not known here; the nearest of the \d+ known are llama, .*", facts["reason"]
    )


def test_show_says_which_format_has_no_kernel(invoke: Invoke, tmp_path: Path) -> None:
    """A matrix in a format that only ever holds activations."""
    from llamina.gguf import tensor_type, write

    spec = SPECS["llama-dense"]
    kinds = {"blk.0.attn_q.weight": tensor_type("Q8_1"), "blk.0.attn_k.weight": tensor_type("NVFP4")}
    shapes = [(name, tuple(shape[::-1]), kinds.get(name, tensor_type("F32"))) for name, shape in spec["tensors"]]
    metadata = {key: value for key, (_, value) in spec["metadata"].items()}
    write(tmp_path / "m.gguf", metadata, [(name, shape, kind, bytes(kind.size(shape))) for name, shape, kind in shapes])
    facts = json.loads(invoke("show", tmp_path / "m.gguf", "--json").stdout)
    assert facts["runs"] is False and facts["reason"].startswith("blk.0.attn_q.weight is Q8_1, which has no kernel")
    assert [facts["formats"][name]["kernel"] for name in ("F32", "NVFP4", "Q8_1")] == ["cpu", "cpu", None]
    out = invoke("show", tmp_path / "m.gguf").stdout
    assert out.count("in 1 (no kernel)") == 1


def test_show_tells_the_memory(invoke: Invoke, stories: Path) -> None:
    """What an engine really takes for pages of keys and values."""
    import llamina
    from llamina.backends.cpu import CpuBackend

    memory = json.loads(invoke("show", stories, "--json").stdout)["memory"]
    for kind in CpuBackend.kv_types:
        with llamina.load(stories, kv_type=kind, threads=1) as engine:
            assert memory["per_1024_tokens"][kind] == 1024 // 16 * engine.runner.program.states.size("page")
    assert memory["weights"] == 292_800 * 4 and memory["per_sequence"] == 0
    assert memory["per_1024_tokens_out_of_window"] is None
    assert "KV cache of 1,024 tokens: 655.4 kB in f16" in invoke("show", stories).stdout


def test_show_tells_the_memory_of_windows(invoke: Invoke, tmp_path: Path) -> None:
    import llamina

    out = convert(folder(tmp_path / "gemma2", "gemma2"), tmp_path / "m.gguf").path
    memory = json.loads(invoke("show", out, "--json").stdout)["memory"]
    with llamina.load(out, threads=1, context=2048, max_sequences=1) as engine:
        page, window = (1024 // 16 * engine.runner.program.states.size(unit) for unit in ("page", "window"))
    assert (memory["per_1024_tokens"]["f16"], memory["per_1024_tokens_out_of_window"]["f16"]) == (page + window, page)
    assert 0 < page < window + page and "1,024 tokens outside the window: " in invoke("show", out).stdout


def test_show_tells_features(invoke: Invoke, tmp_path: Path) -> None:
    for name, expected in (
        ("gemma2", ["sliding window of 8 tokens in 1 of 2 layers", "attention softcap of 50", TIED]),
        (
            "gemma4-shared",
            [WINDOWS, "keys and values of other layers in 2 of 5 layers", "RoPE frequency factors", TIED],
        ),
        ("deepseek3-yarn", ["latent attention (MLA), 48 values per token and layer", MOE, "YaRN scaled by 4"]),
        ("mamba2", ["recurrent states in 2 of 2 layers"]),
        ("llama", ["RoPE frequency factors"]),
        ("bloom", ["ALiBi", TIED]),
    ):
        out = convert(folder(tmp_path / name, name), tmp_path / f"{name}.gguf").path
        facts = json.loads(invoke("show", out, "--json").stdout)
        assert facts["runs"] is True and facts["features"] == expected
        assert (facts["memory"]["per_sequence"] > 0) == (name == "mamba2")


def test_show_says_why_a_vocabulary_cannot_be_read(invoke: Invoke, tmp_path: Path) -> None:
    from llamina.gguf import write

    vocabulary = {"model": "gpt2", "pre": "sorcery", "tokens": ["a"], "merges": ["a b"]}
    metadata = {f"tokenizer.ggml.{key}": value for key, value in vocabulary.items()}
    write(tmp_path / "m.gguf", {"general.architecture": "llama", **metadata}, [])
    assert "1 tokens (gpt2/sorcery): tokenizer.ggml.pre is 'sorcery'" in invoke("show", tmp_path / "m.gguf").stdout


@pytest.fixture
def address(stories: Path) -> Iterator[str]:
    """The model on a web server that knows ranges."""
    data = stories.read_bytes()

    class Files(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            first, last = self.headers["Range"].removeprefix("bytes=").split("-")
            part = data[int(first) : int(last) + 1]
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}")
            self.send_header("Content-Length", str(len(part)))
            self.end_headers()
            self.wfile.write(part)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/model.gguf"
    server.shutdown()
    server.server_close()
    thread.join()


def test_show_of_a_url(invoke: Invoke, stories: Path, address: str) -> None:
    here = json.loads(invoke("show", stories, "--json", "--tensors").stdout)
    there = json.loads(invoke("show", address, "--json", "--tensors").stdout)
    assert there.pop("file") == address
    assert {key: value for key, value in here.items() if key != "file"} == there


def test_tokenize_and_back(invoke: Invoke, stories: Path) -> None:
    ids = invoke("tokenize", "Once upon a time", "-m", stories, "--ids").stdout
    assert ids == "1 403 407 261 378\n"
    assert invoke("tokenize", "Once upon a time", "-m", stories, "--ids", "--no-special").stdout == ids[2:]
    assert invoke("detokenize", "-m", stories, *ids.split()[1:]).stdout == "Once upon a time\n"
    assert invoke("detokenize", "-m", stories, input="[403, 407, 261, 378]").stdout == "Once upon a time\n"


def test_tokenize_as_lines_and_json(invoke: Invoke, stories: Path) -> None:
    assert "    403  ' Once'\n" in invoke("tokenize", "Once", "-m", stories).stdout
    told = json.loads(invoke("tokenize", "-m", stories, "--json", input="Once").stdout)
    assert told == {"tokens": [1, 403], "pieces": ["<s>", " Once"], "count": 2}


def test_tokenize_shows_text_and_bytes_where_there_is_none(invoke: Invoke, golden: Callable[[str], Path]) -> None:
    """A vocabulary of byte-level pairs, whose own spelling of ö is Ã¶."""
    model = golden("vocab/ggml-vocab-gpt-2.gguf")
    lines = invoke("tokenize", "wörld 🦙", "-m", model).stdout.splitlines()
    pieces = [line.split(maxsplit=1)[1] for line in lines]
    assert pieces == ["'w'", "'ör'", "'ld'", "b' \\xf0\\x9f'", "b'\\xa6'", "b'\\x99'"]
    told = json.loads(invoke("tokenize", "wörld 🦙", "-m", model, "--json").stdout)
    assert told["pieces"] == ["w", "ör", "ld", [0x20, 0xF0, 0x9F], [0xA6], [0x99]]


def test_tokenize_special(invoke: Invoke, stories: Path) -> None:
    plain = invoke("tokenize", "</s>", "-m", stories, "--ids", "--no-special").stdout
    parsed = invoke("tokenize", "</s>", "-m", stories, "--ids", "--no-special", "--parse-special").stdout
    assert parsed == "2\n" != plain


@pytest.mark.parametrize(("ids", "message"), [(["x"], "'x' is not a token id"), (["999"], "outside the vocabulary")])
def test_detokenize_mistakes(invoke: Invoke, stories: Path, ids: list[str], message: str) -> None:
    result = invoke("detokenize", "-m", stories, *ids)
    assert result.exit_code == 2 and message in result.stderr


def test_an_empty_list(invoke: Invoke, empty_store: Path) -> None:
    result = invoke("list")
    assert (result.exit_code, result.stdout) == (0, "") and "llamina pull qwen2.5-coder-0.5b" in result.stderr
    assert json.loads(invoke("ls", "--json").stdout) == []


def test_a_list_of_all_that_can_be_pulled(invoke: Invoke, empty_store: Path) -> None:
    lines = {line.split()[0]: line for line in invoke("list", "--all").stdout.splitlines()}
    assert "491.4 MB" in lines["qwen2.5-coder-0.5b"] and "instruct" in lines["qwen2.5-coder-0.5b"]
    assert "base" in lines["gemma3-270m"] and lines["gemma3-270m"].endswith("not pulled")
    rows = {row["name"]: row for row in json.loads(invoke("ls", "-a", "--json").stdout)}
    assert rows["nomic-embed-text"]["kind"] == "embedding" and rows["nomic-embed-text"]["path"] is None


@pytest.fixture
def base_model(empty_store: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a base model that is here."""
    from dataclasses import replace
    from hashlib import sha256

    from llamina import hub

    empty_store.mkdir(parents=True)
    (empty_store / "tiny.gguf").write_bytes(b"GGUF")
    about = {"name": "tiny", "file": "tiny.gguf", "size": 4, "sha256": sha256(b"GGUF").hexdigest()}
    monkeypatch.setitem(hub.CATALOGUE, "tiny", replace(hub.CATALOGUE["gemma3-270m"], **about))
    return "tiny"


def test_base_models_are_called_so(invoke: Invoke, base_model: str) -> None:
    assert invoke("list").stdout.splitlines()[1].split()[:4] == ["tiny", "4", "B", "base"]
    (row,) = json.loads(invoke("list", "--json").stdout)
    assert (row["kind"], row["licence"]) == ("base", "Gemma terms of use")
    assert "tiny is a base model: it continues text" in invoke("pull", "tiny").stderr
    assert not invoke("pull", "tiny", "-q").stderr


def test_rm_of_a_file(invoke: Invoke, empty_store: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF")
    result = invoke("rm", path)
    assert result.exit_code == 2 and "is no pulled model but a path" in result.stderr and path.exists()


def test_list_and_remove(invoke: Invoke, empty_store: Path, stories: Path) -> None:
    empty_store.mkdir(parents=True)
    (empty_store / "Story.F32.gguf").write_bytes(stories.read_bytes())
    assert invoke("list").stdout.splitlines()[1].split()[:3] == ["Story.F32", "1.2", "MB"]
    (row,) = json.loads(invoke("ls", "--json").stdout)
    assert row["name"] == "Story.F32" and row["size"] == stories.stat().st_size
    assert "llama" in invoke("show", "story-f32").stdout
    assert "removed Story.F32" in invoke("rm", "story-f32").stderr
    assert invoke("rm", "story-f32").exit_code == 3


def test_pull_prints_the_path(invoke: Invoke, empty_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from llamina import hub

    def pull(name: str, progress: Callable[[str, int, int], None], **options: object) -> Path:
        progress(name, 0, 1_000_000)
        progress(name, 1_000_000, 1_000_000)
        path = empty_store / "m.gguf"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x" * 1000)
        return path

    monkeypatch.setattr(hub, "pull", pull)
    result = invoke("pull", "smollm2")
    assert result.stdout == f"{empty_store / 'm.gguf'}\n"
    assert result.stderr.splitlines() == ["fetching smollm2 (1.0 MB)", "smollm2 is here: 1.0 kB"]


def test_pulling_an_unknown_name(invoke: Invoke, empty_store: Path) -> None:
    result = invoke("pull", "nothing")
    assert result.exit_code == 3 and "smollm2" in result.stderr
