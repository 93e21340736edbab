"""llama.cpp's server answers the same: field by field, but for the differences that docs/llama-server.md lists."""

import json
import math
import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import httpx
import pytest
from live_server import PATIENCE, Live, serving
from peer_models import FIM, REPOSITORY, write_fim, write_ranker

from llamina import load
from skips import import_peer

DOCS = Path(__file__).parents[2] / "docs" / "llama-server.md"
GREEDY: dict[str, Any] = {"temperature": 0, "n_predict": 8}
HI = [{"role": "user", "content": "What is the capital of Japan?"}]
TALK = [{"role": "system", "content": "Be brief."}, *HI, {"role": "assistant", "content": "Tokyo."}, *HI]
JAPAN = "The capital of Japan is"
SCHEMA = {"type": "object", "properties": {"city": {"enum": ["Tokyo", "Lima"]}}, "required": ["city"]}
GBNF = 'root ::= "yes" | "no"'
TOOL = {
    "type": "function",
    "function": {"name": "capital", "parameters": {"type": "object", "properties": {"country": {"type": "string"}}}},
}

# (model, path, body); a body of None is a GET. What follows a # tells requests of a path apart in the table.
REQUESTS: list[tuple[str, str, Any]] = [
    ("stories", "/health", None),
    ("stories", "/props", None),
    ("smollm2", "/props", None),
    ("stories", "/slots", None),
    ("stories", "/v1/models", None),
    ("stories", "/lora-adapters", None),
    ("stories", "/lora-adapters", []),
    ("stories", "/lora-adapters#unknown", [{"id": 3, "scale": 1.0}]),
    ("stories", "/tokenize", {"content": "Once upon a time"}),
    ("stories", "/tokenize", {"content": "Once upon a time", "add_special": True}),
    ("stories", "/tokenize", {"content": "á <s>", "with_pieces": True}),
    ("smollm2", "/tokenize", {"content": "<|im_start|>user é", "with_pieces": True}),
    ("smollm2", "/tokenize", {"content": "<|im_start|>user", "parse_special": False}),
    ("stories", "/detokenize", {"tokens": [1, 403, 407, 261, 378]}),
    ("smollm2", "/detokenize", {"tokens": [1, 4093, 198, 28120]}),
    ("smollm2", "/apply-template", {"messages": TALK}),
    ("smollm2", "/apply-template", {"messages": HI, "add_generation_prompt": False}),
    ("stories", "/completion", {"prompt": "Once upon a time", **GREEDY}),
    ("stories", "/completion", {"prompt": "Once upon a time", **GREEDY, "n_probs": 3, "return_tokens": True}),
    ("stories", "/completion", {"prompt": [1, 403, 407, 261, 378], **GREEDY, "return_tokens": True}),
    ("stories", "/completion", {"prompt": [403, 407, " a time"], **GREEDY}),
    ("stories", "/completion", {"prompt": ["Once upon", "Lily and"], **GREEDY}),
    ("stories", "/completion", {"prompt": "Once upon a time", **GREEDY, "n_predict": 40, "stop": ["little", "girl"]}),
    ("stories", "/completion", {"prompt": "Once upon a time", **GREEDY, "stream": True, "stop": ["girl"]}),
    ("stories", "/completion", {"prompt": "Once upon a time", **GREEDY, "stream": True, "n_probs": 2}),
    ("stories", "/completion", {"prompt": "Once", **GREEDY, "response_fields": ["content", "timings/predicted_n"]}),
    ("stories", "/completion#nothing", {"prompt": "Once", **GREEDY, "n_predict": 0}),
    ("stories", "/completion", {"prompt": "Once", **GREEDY, "logit_bias": [[432, False], [261, 5.0]]}),
    ("stories", "/completion", {"prompt": "Once", **GREEDY, "repeat_penalty": 1.5, "frequency_penalty": 0.5}),
    ("stories", "/completion#ignore_eos", {
        "prompt": "Once", **GREEDY, "ignore_eos": True, "top_k": 5, "min_p": 0.1, "seed": 7,
    }),
    ("smollm2", "/completion#grammar", {"prompt": JAPAN, **GREEDY, "grammar": GBNF}),
    ("smollm2", "/completion#grammar", {"prompt": JAPAN, "temperature": 0, "n_predict": 40, "json_schema": SCHEMA}),
    ("smollm2", "/completion", {"prompt": JAPAN, **GREEDY, "n_probs": 1}),
    ("stories", "/completion", {"prompt": 3}),
    ("stories", "/completion", {"prompt": "x" * 40000}),
    ("stories", "/infill#unable", {"input_prefix": "a", "input_suffix": "b"}),
    ("fim", "/infill", {"input_prefix": "Once upon a", "input_suffix": " girl.", **GREEDY}),
    ("fim", "/infill", {
        "input_prefix": "Once", "input_suffix": " girl.", "prompt": " upon",
        "input_extra": [{"filename": "a.txt", "text": "Lily"}], **GREEDY,
    }),
    ("smollm2", "/v1/completions", {"prompt": JAPAN, "temperature": 0, "max_tokens": 6}),
    ("smollm2", "/v1/completions", {"prompt": JAPAN, "temperature": 0, "max_tokens": 6, "stream": True}),
    ("smollm2", "/chat/completions", {"messages": HI, "temperature": 0, "max_tokens": 8}),
    ("smollm2", "/v1/chat/completions", {"messages": HI, "temperature": 0, "max_tokens": 8, "stream": True}),
    ("smollm2", "/v1/chat/completions", {
        "messages": HI, "temperature": 0, "max_tokens": 4, "logprobs": True, "top_logprobs": 2,
    }),
    ("smollm2", "/v1/chat/completions#grammar", {
        "messages": HI, "temperature": 0, "max_tokens": 40,
        "response_format": {"type": "json_object", "schema": {"enum": ["Tokyo", "Lima"]}},
    }),
    ("smollm2", "/v1/chat/completions", {"messages": "hi"}),
    ("smollm2", "/v1/completions#logprobs", {"prompt": JAPAN, "temperature": 0, "max_tokens": 3, "logprobs": 1}),
    ("smollm2", "/v1/messages", {"messages": HI, "temperature": 0, "max_tokens": 8}),
    ("smollm2", "/v1/messages/count_tokens", {"messages": TALK[1:]}),
    ("stories", "/models", None),
    ("embedder", "/embeddings", {"input": ["Once upon a time", "Lily"], "embd_normalize": -1}),
    ("ranker", "/rerank", {"query": "what is a panda?", "documents": ["hi", "it is a bear"]}),
    ("embedder", "/embedding", {"content": "a llama"}),
    ("embedder", "/v1/embeddings", {"input": ["a llama", "an alpaca"]}),
    ("ranker", "/v1/rerank", {"query": "what is a panda?", "documents": ["hi", "it is a bear", "a panda"], "top_n": 2}),
    ("ranker", "/v1/rerank", {"query": "what is a panda?"}),
]  # fmt: skip


CHANGING = ("*created", "*_ms", "*_per_second", "*id_slot")  # from run to run
# SmolLM2 has 4-bit weights, with which either side rounds activations to 8 bits in its own way
TOLERANCE = {"stories": 2e-3, "fim": 2e-3, "ranker": 2e-3, "embedder": 5e-3, "smollm2": 0.1}


def alias(model: str) -> str:
    """The name of a model; llama-server cannot both generate and embed, ours can."""
    return "stories" if model == "embedder" else model


@pytest.fixture(scope="module")
def paths(smollm2: Path, golden: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The files of the models."""
    folder, stories = tmp_path_factory.mktemp("peers"), golden("stories260K.gguf")
    fim = write_fim(golden, folder / "fim.gguf", FIM | REPOSITORY)
    ranker = write_ranker(golden, folder / "ranker.gguf")
    return {"smollm2": smollm2, "stories": stories, "embedder": stories, "fim": fim, "ranker": ranker}


@pytest.fixture(scope="module")
def ours(paths: dict[str, Path]) -> Iterator[Live]:
    engines = {
        name: load(paths[name], threads=1, context=2048, max_sequences=2) for name in ("smollm2", "stories", "fim")
    }
    with serving(engines | {"ranker": load(paths["ranker"], threads=1, max_sequences=2)}) as server:
        yield server


@pytest.fixture(scope="module")
def theirs(paths: dict[str, Path]) -> Iterator[Callable[[str], str]]:
    """The address of a native llama-server for a model, started when it is first asked for."""
    peer = import_peer("xllamacpp")
    servers: dict[str, Any] = {}

    def start(model: str) -> str:
        if model not in servers:
            params = peer.CommonParams()
            params.model.path, params.verbosity, params.n_gpu_layers, params.port = str(paths[model]), -1, 0, 0
            params.n_parallel, params.n_ctx, params.model_alias = 2, 4096, {alias(model)}
            params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
            params.endpoint_slots = params.endpoint_metrics = True
            params.n_batch = 512  # of which /infill lets context take the rest
            if model in ("ranker", "embedder"):
                pooling = peer.llama_pooling_type
                params.embedding, ranks = True, model == "ranker"
                params.pooling_type = pooling.LLAMA_POOLING_TYPE_RANK if ranks else pooling.LLAMA_POOLING_TYPE_LAST
            servers[model] = peer.Server(params)
        address: str = servers[model].listening_address
        return address

    yield start
    servers.clear()


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=PATIENCE) as found:
        yield found


def fetch(client: httpx.Client, url: str, path: str, body: Any, **query: str) -> tuple[int, Any]:
    """The status and the body; of a stream, what its events come to."""
    method, path = "GET" if body is None else "POST", path.split("#")[0]
    answer = client.request(method, url + path, json=body, params=query)
    if answer.headers["content-type"].startswith("text/event-stream"):
        lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
        return answer.status_code, together(
            [json.loads(line) for line in lines if line != "[DONE]"], lines[-1] == "[DONE]"
        )
    return answer.status_code, answer.json()


def together(events: list[dict[str, Any]], done: bool) -> dict[str, Any]:
    """Events of one token each, or of several: what they say in all, and the last of them."""
    texts, fields, last = "", set[str](), dict[str, Any]()
    for event in events:
        choices = event.get("choices", [{}])
        choice = choices[0] if choices else {}
        texts += str(event.get("content") or choice.get("text") or choice.get("delta", {}).get("content") or "")
        fields |= event.keys() | {f"choice.{name}" for name in choice}
        last |= {name: value for name, value in event.items() if name != "choices" or value}
    for choice in last.get("choices", ()):
        choice["text"] = choice["delta"] = None  # it was told above
    return {"text": texts, "fields": dict.fromkeys(fields, True), "last": last, "done": done}


def differences(ours: Any, theirs: Any, where: str = "", tolerance: float = 0.0) -> Iterator[tuple[str, Any, Any]]:
    """The fields that differ, by their path; those of all elements of a list have the same."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in ours.keys() | theirs.keys():
            yield from differences(
                ours.get(name, "—"), theirs.get(name, "—"), f"{where}.{name}" if where else name, tolerance
            )
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for a, b in zip(ours, theirs, strict=True):
            yield from differences(a, b, f"{where}.#", tolerance)
    elif {type(ours), type(theirs)} <= {int, float} and float in (type(ours), type(theirs)):
        if not math.isclose(ours, theirs, rel_tol=tolerance, abs_tol=tolerance):
            yield where, ours, theirs
    elif ours != theirs:
        yield where, ours, theirs


def known() -> list[tuple[str, str]]:
    """The endpoints and fields of the table of differences; both may be patterns."""
    rows = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", DOCS.read_text(), re.MULTILINE)
    return [(endpoint, field) for endpoint, field in rows]


def test_llama_server_answers_the_same(ours: Live, theirs: Callable[[str], str], client: httpx.Client) -> None:
    """Greedy answers to the same requests. What differs is in the table, and what is in the table differs."""
    assert len(REQUESTS) >= 40
    table, used, unexplained = known(), set[tuple[str, str]](), []
    for model, path, body in REQUESTS:
        name = alias(model)
        mine = body | {"model": name} if isinstance(body, dict) else body
        status, answer = fetch(client, ours.url, path, mine, **({} if isinstance(body, dict) else {"model": name}))
        their_status, their_answer = fetch(client, theirs(model), path, body)
        if path in ("/v1/models", "/models"):  # theirs has one model
            answer["data"] = [one for one in answer["data"] if one["id"] == model]
        found = [*differences(answer, their_answer, tolerance=TOLERANCE[model])]
        found += [("status", status, their_status)] if status != their_status else []
        for field, a, b in (one for one in found if not any(fnmatch(one[0], pattern) for pattern in CHANGING)):
            rows = {row for row in table if fnmatch(path, row[0]) and fnmatch(field, row[1])}
            used |= rows
            unexplained += (
                [] if rows else [f"{path} {field}: {str(a)[:300]!r} and not {str(b)[:300]!r} for {str(body)[:100]}"]
            )
    assert not unexplained, "\n".join(unexplained)
    assert not set(table) - used, "these do not differ any more"
