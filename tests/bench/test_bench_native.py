"""llama.cpp's programs: what they printed once is understood, and a program that stands in for them is run."""

import sys
from pathlib import Path

import pytest

from llamina.bench.llama_server import PROGRAM
from llamina.bench.native import Flags, Native, bare, parse_batched, parse_bench, parse_version
from llamina.bench.task import Task
from llamina.errors import CapacityError, RequestError

RECORDED = Path(__file__).parent / "recorded"
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="hardware: the programs that stand in are scripts")


def test_rows_of_llama_bench() -> None:
    rows = parse_bench((RECORDED / "llama-bench.jsonl").read_text(), tiled=False)
    assert len(rows) == 12 and {row.threads for row in rows} == {1}
    assert {row.task for row in rows} == {Task("prompt", 16), Task("prompt", 32), Task("generate", 8)}
    first = rows[0]
    assert (first.task.name, first.rate) == ("pp16", 8809.456952)
    assert first.flags == Flags(flash=False, repack=False, tiled=False)
    assert len({(row.task, row.flags) for row in rows}) == 12


def test_rows_of_llama_batched_bench() -> None:
    flags = Flags(repack=False)
    eight, more = parse_batched((RECORDED / "llama-batched-bench.jsonl").read_text(), flags)
    assert (eight.task, eight.rate, eight.flags) == (Task("generate", 8, 8, 16), 2354.152832, flags)
    assert (more.task.name, more.rate) == ("tg8 b32 @ d16", 4040.340576)


def test_what_is_not_understood() -> None:
    assert parse_bench("warming up\n\n") == []
    with pytest.raises(CapacityError, match="a row that is not understood: KeyError"):
        parse_bench('{"n_prompt": 5}')
    with pytest.raises(CapacityError, match=r"llama-batched-bench printed .* which is no JSON"):
        parse_batched('{"pp": 16,', Flags())


def test_versions() -> None:
    told = "load_backend: loaded\nversion: 0.5.0-dev (build 1, commit 0c1e570)\nbuilt with GNU\n"
    assert parse_version(told) == "0.5.0-dev (build 1, commit 0c1e570)"
    assert parse_version("?") == "unknown"


STAND_IN = """
import json, os, sys
from pathlib import Path

def given(flag, otherwise=""):
    return sys.argv[sys.argv.index(flag) + 1] if flag in sys.argv else otherwise

name, tiled = Path(sys.argv[0]).name, int(os.environ["GGML_CPU_TILED_MM"])
assert os.environ["LD_LIBRARY_PATH"].split(":")[0] == str(Path(sys.argv[0]).parent)
with Path(sys.argv[0]).with_name("asked").open("a") as asked:
    print(name, *sys.argv[1:], file=asked)
if "--version" in sys.argv:
    print("version: 1 (abc)", file=sys.stderr)
elif "--help" in sys.argv:
    print("--repack <0|1>")
elif "missing.gguf" in given("-m"):
    sys.exit("loading\\nfailed to load the model")
elif name == "llama-bench":
    for flash in given("-fa").split(","):
        for repack in given("--repack").split(","):
            row = {"n_prompt": int(given("-p")), "n_gen": int(given("-n")), "n_depth": 0, "n_threads": 2}
            rate = 100 + 10 * (flash == "0") + 5 * int(repack) + tiled
            print(json.dumps({**row, "flash_attn": int(flash), "repack": bool(int(repack)), "avg_ts": rate}))
else:
    rate = 50 + 10 * (given("-fa") == "on") + 5 * ("--no-repack" in sys.argv) + tiled
    sizes = {"pp": int(given("-npp")), "tg": int(given("-ntg")), "pl": int(given("-npl"))}
    lost = sizes["pl"] == 32 or (sizes["pl"] == 9 and not Path(sys.argv[0]).with_name("lost").exists())
    Path(sys.argv[0]).with_name("lost").touch()
    print("" if lost else json.dumps({**sizes, "n_threads": 2, "speed_tg": rate}))
"""


@pytest.fixture
def native(tmp_path: Path) -> Native:
    for name in ("llama-bench", "llama-batched-bench"):
        (tmp_path / name).write_text(f"#!{sys.executable}\n{STAND_IN}")
        (tmp_path / name).chmod(0o755)
    return Native(tmp_path / "llama-bench")


def test_the_fastest_flags_of_each_task(native: Native) -> None:
    model = Path("folder/a.gguf")
    assert native.version == "1 (abc)"
    assert native.best(model, Task("prompt", 16), 2) == Flags(flash=False, repack=True, tiled=True)
    batch = Task("generate", 4, 8, depth=16)
    best = native.best(model, batch, 2)
    assert best == Flags(flash=True, repack=False, tiled=True)
    assert native.run(model, batch, 2, best) == 66.0
    assert native.command == (
        "llama-batched-bench -m a.gguf -c 2048 -npp 16 -ntg 4 -npl 8 -t 2 -ngl 0 -fa on --no-repack "
        "--output-format jsonl"
    )
    assert native.run(model, Task("generate", 5), 2, Flags(tiled=False)) == 105.0
    assert native.command.startswith("GGML_CPU_TILED_MM=0 llama-bench -m a.gguf -p 0 -n 5 -d 0 -t 2 -r 1 ")


def test_a_row_that_is_lost_is_asked_for_again(native: Native, tmp_path: Path) -> None:
    assert native.run(Path("a.gguf"), Task("generate", 4, 9, depth=16), 2, Flags()) == 61.0
    assert (tmp_path / "asked").read_text().count("-npl 9") == 2


def test_embeddings_of_one_text(native: Native, tmp_path: Path) -> None:
    (row,) = native.bench(Path("a.gguf"), Task("prompt", 256), 2, [Flags()], embedding=True)
    assert row.rate == 106.0 and "-embd 1" in (tmp_path / "asked").read_text()


def test_programs_that_fail_or_are_not_there(native: Native, tmp_path: Path) -> None:
    with pytest.raises(CapacityError, match="llama-bench ended with code 1 and said: failed to load the model"):
        native.run(Path("missing.gguf"), Task("prompt", 8), 2, Flags())
    with pytest.raises(
        CapacityError, match="llama-batched-bench did not measure tg4 b32 @ d8: run llama-batched-bench"
    ):
        native.run(Path("a.gguf"), Task("generate", 4, 32, depth=8), 2, Flags())
    (tmp_path / "llama-batched-bench").unlink()
    with pytest.raises(CapacityError, match=r"llama-batched-bench is not beside llama-bench in .*: build it"):
        native.run(Path("a.gguf"), Task("generate", 4, 8, depth=8), 2, Flags())
    with pytest.raises(RequestError, match="is not a file: give the program llama-bench"):
        Native(tmp_path / "nothing")


def test_paths_of_this_machine_are_not_told() -> None:
    assert bare("/home/me/models/a.gguf") == "a.gguf" and bare("-fa") == "-fa"


SERVER = """
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def do_POST(self):
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["content"]
        found = [{"index": i, "embedding": [[float(len(text))]]} for i, text in enumerate(texts[:3])]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(found[::-1]).encode())

    def log_message(self, *what):
        pass

assert "--embedding" in sys.argv and "--no-repack" in sys.argv
HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


def test_embeddings_by_a_server(native: Native, tmp_path: Path) -> None:
    (tmp_path / PROGRAM).write_text(f"#!{sys.executable}\n{SERVER}")
    (tmp_path / PROGRAM).chmod(0o755)
    server = native.serve_embeddings(Path("a.gguf"), 2, 8, 512, 256, Flags(repack=False))
    try:
        assert server.embed([[1], [1, 2]]) == [[1.0], [2.0]]
        with pytest.raises(CapacityError, match="llama-server embedded 3 of 4 prompts"):
            server.embed([[1]] * 4)
    finally:
        server.close()
    assert native.command.startswith(
        "llama-server --model a.gguf --embedding --threads 2 --parallel 8 --ctx-size 2048 "
    )
