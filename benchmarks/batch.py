"""Answer a whole batch of 50,000 lines with a real server: rate, memory of the server, and what live requests notice.

    python benchmarks/batch.py MODEL [--lines 50000] [--tokens 1] [--endpoint /v1/completions]

MODEL is a small GGUF file, such as stories260K. The batch comes by `/v1/files` and `/v1/batches`; while it runs, a live
request is sent now and then, and its time told beside the time that it took before. Every line must be answered once.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / "server")]

import psutil  # noqa: E402
from crashes import ENDED, Process  # noqa: E402


def live_seconds(process: Process) -> float:
    """The time of one short request of the live endpoint."""
    start = time.perf_counter()
    body = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
    process.client.post("/v1/completions", json=body).raise_for_status()
    return time.perf_counter() - start


def created(process: Process, lines: int, tokens: int, endpoint: str) -> str:
    """The id of a new batch."""

    def line(i: int) -> bytes:
        text = f"Once upon a time there were {i} llamas"
        body: dict[str, Any] = {"input": text} if "embeddings" in endpoint else {"prompt": text, "max_tokens": tokens}
        return json.dumps({"custom_id": str(i), "method": "POST", "url": endpoint, "body": body}).encode() + b"\n"

    content = b"".join(line(i) for i in range(lines))
    file = process.client.post("/v1/files", files={"file": ("in", content)}, data={"purpose": "batch"}).json()
    body = {"input_file_id": file["id"], "endpoint": endpoint, "completion_window": "24h"}
    id: str = process.client.post("/v1/batches", json=body).raise_for_status().json()["id"]
    return id


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--lines", type=int, default=50_000)
    parser.add_argument("--tokens", type=int, default=1)
    parser.add_argument("--endpoint", default="/v1/completions")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        process = Process(asked.model.resolve(), Path(folder))
        try:
            live_seconds(process)  # the model is loaded then
            alone = [live_seconds(process) for _ in range(20)]
            before = memory = psutil.Process(process.pid).memory_info().rss
            start, beside = time.perf_counter(), []
            id = created(process, asked.lines, asked.tokens, asked.endpoint)
            while (told := process.get(f"/v1/batches/{id}"))["status"] not in ENDED:
                if told["status"] == "in_progress":
                    beside.append(live_seconds(process))
                memory = max(memory, psutil.Process(process.pid).memory_info().rss)
                time.sleep(0.5)
            seconds = time.perf_counter() - start
            text = process.client.get(f"/v1/files/{told['output_file_id']}/content").text
            answered = [json.loads(line)["custom_id"] for line in text.splitlines()]
        finally:
            process.kill()
    assert sorted(answered, key=int) == [str(i) for i in range(asked.lines)], "each line is answered once"
    assert told["request_counts"] == {"total": asked.lines, "completed": asked.lines, "failed": 0}
    work = told["completed_at"] - told["in_progress_at"]
    print(f"{asked.lines} lines in {seconds:.0f} s, {asked.lines / max(work, 1):.0f} a second")
    print(f"memory of the server: {before / 1e6:.0f} MB before, {memory / 1e6:.0f} MB at the most")
    for name, times in (("alone", alone), ("beside the batch", beside)):
        print(f"a live request {name}: median {1e3 * statistics.median(times):.0f} ms, worst {1e3 * max(times):.0f} ms")


if __name__ == "__main__":
    main()
