"""llama.cpp's and vLLM's own endpoints, against a live server."""

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from live_server import PATIENCE, Live, serving, wait_for
from peer_models import FIM, write_fim, write_ranker

from llamina import load
from llamina.server.config import Config
from lora_files import draw, save

GREEDY: dict[str, Any] = {"temperature": 0, "n_predict": 12}
TALE = "Once upon a time, there was a little girl named Lily. She loved to play outside in the park with her ball. "


def ask(live: Live, path: str, body: Any, model: str = "stories", status: int = 200) -> Any:
    answer = live.post(path, {"model": model, **body})
    assert answer.status_code == status, answer.text
    return answer.json()


def get(live: Live, path: str, model: str = "stories") -> Any:
    answer = httpx.get(f"{live.url}{path}", params={"model": model}, timeout=PATIENCE)
    assert answer.status_code == 200, answer.text
    return answer.json()


def streamed(live: Live, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    with httpx.stream("POST", live.url + path, json=body | {"stream": True}, timeout=PATIENCE) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        return [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: ")]


def test_completion(live: Live) -> None:
    engine = live.engines["stories"]
    expected = engine.generate(TALE, temperature=0, max_tokens=12, logprobs=2)
    answer = ask(live, "/completion", {"prompt": TALE, **GREEDY, "n_probs": 2, "return_tokens": True})
    assert answer["content"] == expected.text and answer["tokens"] == expected.tokens
    assert answer["stop_type"] == "limit" and answer["tokens_predicted"] == 12
    assert answer["prompt"] == f"<s> {TALE}" and answer["generation_settings"]["n_predict"] == 12
    assert expected.logprobs is not None
    assert [x["logprob"] for x in answer["completion_probabilities"]] == [x.logprob for x in expected.logprobs if x]
    several = ask(live, "/completion", {"prompt": [TALE, [1, 403]], **GREEDY, "n_cmpl": 2})
    assert [part["index"] for part in several] == [0, 1, 2, 3] and several[0]["content"] == expected.text
    picked = ask(
        live, "/completion", {"prompt": TALE, **GREEDY, "response_fields": ["content", "timings/prompt_n", "x"]}
    )
    assert set(picked) == {"content", "timings/prompt_n"} and picked["content"] == expected.text


def test_completion_streamed(live: Live) -> None:
    whole = ask(live, "/completion", {"prompt": TALE, **GREEDY, "return_tokens": True})
    *parts, last = streamed(
        live, "/completion", {"model": "stories", "prompt": TALE, **GREEDY, "timings_per_token": True}
    )
    assert "".join(part["content"] for part in parts) == whole["content"] and not any(part["stop"] for part in parts)
    assert [token for part in parts for token in part["tokens"]] == whole["tokens"]
    assert parts[-1]["timings"]["predicted_n"] == 12 and last["stop"] and last["content"] == ""
    both = streamed(live, "/completion", {"model": "stories", "prompt": ["Once", "Lily"], **GREEDY})
    assert {part["index"] for part in both} == {0, 1} and sum(part["stop"] for part in both) == 2


def test_progress_of_a_prompt(live: Live) -> None:
    body = {"model": "stories", "prompt": TALE * 30, **GREEDY, "return_progress": True, "cache_prompt": False}
    told = [part["prompt_progress"] for part in streamed(live, "/completion", body) if "prompt_progress" in part]
    assert [p["processed"] for p in told] == sorted({p["processed"] for p in told}) and len(told) >= 2
    assert all(0 < p["processed"] < p["total"] for p in told)


def test_cutoffs(live: Live) -> None:
    """A least indentation of lines, and a time limit that waits for a line to end."""
    lines = {"prompt": "Once", "temperature": 0, "grammar": r'root ::= "a\n  b\n c\n" [a-z]*', "n_predict": 50}
    cut = ask(live, "/completion", lines | {"n_indent": 2})
    assert cut["content"] == "a\n  b\n " and cut["stop_type"] == "limit"
    late = {"prompt": "Once", "temperature": 0, "grammar": r'root ::= "a\n" [b]+', "t_max_predict_ms": 1}
    cut = ask(live, "/completion", late)
    assert cut["content"].startswith("a\nb") and cut["tokens_predicted"] < 1900
    assert wait_for(lambda: live.idle("stories")), "what was cut off is not computed on"


def test_nothing_generated(live: Live) -> None:
    answer = ask(live, "/completion", {"prompt": TALE, "n_predict": 0})
    assert answer["content"] == "" and answer["tokens_predicted"] == 0 and answer["tokens_evaluated"] > 20


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/completion", {"prompt": 3}, "prompt"),
        ("/completion", {"prompt": []}, "prompt"),
        ("/completion", {"prompt": [1, None]}, "prompt"),
        ("/completion", {"prompt": [99999]}, "prompt"),
        ("/completion", {"prompt": {"prompt_string": "a", "multimodal_data": ["b"]}}, "prompt"),
        ("/completion", {"prompt": "a", "n_predict": -2}, "n_predict"),
        ("/completion", {"prompt": "a", "n_predict": 2, "max_tokens": 3}, "n_predict"),
        ("/completion", {"prompt": "a", "n_probs": 1000}, "n_probs"),
        ("/completion", {"prompt": "a", "min_keep": 3}, "min_keep"),
        ("/completion", {"prompt": "a", "post_sampling_probs": True}, "post_sampling_probs"),
        ("/completion", {"prompt": "a", "adaptive_target": 0.5}, "adaptive_target"),
        ("/completion", {"prompt": "a", "logit_bias": [["Hello", 1]]}, "logit_bias"),
        ("/completion", {"prompt": "a", "logit_bias": [3]}, "logit_bias"),
        ("/completion", {"prompt": "a", "lora": [{"id": 7}]}, "lora"),
        ("/completion", {"prompt": "a", "id_slot": 99}, "id_slot"),
        ("/completion", {"prompt": "a", "temprature": 1}, "temprature"),
        ("/completion", {"prompt": "a", "temperature": -1}, "temperature"),
        ("/infill", {"input_prefix": "a"}, "input_suffix"),
        ("/tokenize", {}, "content"),
        ("/tokenize", {"content": "a", "prompt": "b"}, "content"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/v1/rerank", {"query": "a", "documents": []}, "documents"),
        ("/v1/rerank", {"query": "a", "documents": [{"x": 1}]}, "documents"),
        ("/v1/rerank", {"query": "a", "documents": ["b"], "top_n": 0}, "top_n"),
        ("/v1/score", {"text_1": ["a", "b"], "text_2": ["c"]}, "text_1"),
        ("/v1/score", {"text_1": "a", "text_2": []}, "text_2"),
        ("/embedding", {}, "content"),
        ("/embedding", {"content": "a", "embd_normalize": 1}, "embd_normalize"),
        ("/v1/completions", {"prompt": "a", "best_of": 1, "n": 2}, "best_of"),
        ("/v1/completions", {"prompt": "a", "best_of": 2, "stream": True}, "best_of"),
        ("/v1/completions", {"prompt": "a", "suffix": "b", "echo": True}, "echo"),
    ],
)  # fmt: skip
def test_bad_input_names_the_field(live: Live, path: str, body: dict[str, Any], param: str) -> None:
    error = ask(live, path, body, status=400)["error"]
    assert error["param"] == param and error["message"]


def test_an_error_in_llama_cpps_shape(live: Live) -> None:
    error = ask(live, "/completion", {"prompt": TALE * 200}, status=400)["error"]
    assert error["code"] == 400 and error["type"] == "exceed_context_size_error"
    error = ask(live, "/infill", {"input_prefix": "a", "input_suffix": "b"}, status=400)["error"]
    assert "no token for prefix, suffix, middle" in error["message"]
    assert ask(live, "/completion", {"prompt": "a"}, "nobody", 404)["error"]["type"] == "not_found_error"


def test_tokens(live: Live) -> None:
    engine = live.engines["smollm2"]
    text = "<|im_start|>user é"
    whole = ask(live, "/tokenize", {"content": text, "with_pieces": True}, "smollm2")["tokens"]
    assert [token["id"] for token in whole] == engine.encode(text, add_special=False)
    plain = ask(live, "/tokenize", {"content": text, "parse_special": False}, "smollm2")["tokens"]
    assert plain == engine.encode(text, add_special=False, parse_special=False) and len(plain) > len(whole)
    byte = ask(live, "/tokenize", {"content": "á", "with_pieces": True})["tokens"]
    assert [t["piece"] for t in byte[-2:]] == [[0xC3], [0xA1]]
    assert ask(live, "/detokenize", {"tokens": [1, 403, 407]})["content"] == "<s> Once upon"


def test_tokens_as_vllm_has_them(live: Live) -> None:
    engine = live.engines["smollm2"]
    found = ask(live, "/tokenize", {"prompt": "Hello there", "return_token_strs": True}, "smollm2")
    assert found["tokens"] == engine.encode("Hello there") and found["count"] == len(found["tokens"])
    assert found["max_model_len"] == engine.context and found["token_strs"][0] == "Hello"
    messages = [{"role": "user", "content": "Hi"}]
    chat = ask(live, "/tokenize", {"messages": messages}, "smollm2")["tokens"]
    assert chat == engine.encode(engine.render_chat(messages), add_special=False)
    assert ask(live, "/detokenize", {"tokens": found["tokens"]}, "smollm2")["prompt"] == "Hello there"
    info = get(live, "/tokenizer_info", "smollm2")
    assert info["eos_token"] == "<|im_end|>" and "im_start" in info["chat_template"]


def test_apply_template(live: Live) -> None:
    engine, messages = live.engines["smollm2"], [{"role": "user", "content": "Hi"}]
    assert ask(live, "/apply-template", {"messages": messages}, "smollm2")["prompt"] == engine.render_chat(messages)
    without = ask(live, "/apply-template", {"messages": messages, "add_generation_prompt": False}, "smollm2")
    assert without["prompt"] == engine.render_chat(messages, add_generation_prompt=False)
    tool = {"type": "function", "function": {"name": "capital", "parameters": {"type": "object"}}}
    told = ask(live, "/apply-template", {"messages": messages, "tools": [tool]}, "smollm2")["prompt"]
    assert "capital" in told and told.endswith("<|im_start|>assistant\n")


def test_props(live: Live) -> None:
    found = get(live, "/props", "smollm2")
    assert found["total_slots"] == 4 and found["default_generation_settings"]["n_ctx"] == 2048
    assert found["chat_template"] == live.engines["smollm2"].tokenizer.chat_templates["default"]
    assert found["default_generation_settings"]["params"]["top_k"] == 40


@pytest.fixture(scope="module")
def own(golden: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server with a folder for slots, and models with FIM tokens, a classifier, and two LoRAs."""
    folder = tmp_path_factory.mktemp("native")
    stories = golden("stories260K.gguf")
    engines = {
        "stories": load(stories, max_sequences=2),
        "fim": load(write_fim(golden, folder / "fim.gguf", FIM), max_sequences=2),
        "ranker": load(write_ranker(golden, folder / "ranker.gguf"), max_sequences=2),
    }
    names = [f"blk.{layer}.ffn_down.weight" for layer in range(5)]
    for name, seed in (("one", 1), ("two", 2)):
        engines["stories"].load_adapter(
            save(folder / f"{name}.gguf", "llama", draw(stories, names, 4, seed, 1.0)), name
        )
    (folder / "slots").mkdir()
    with serving(engines, Config(data=str(folder / "data"), slots=str(folder / "slots"))) as server:
        yield server


def test_slots(own: Live) -> None:
    """Saved in one place, restored in another, with the same answer and without computing the prompt again."""
    answer = ask(own, "/completion", {"prompt": TALE, **GREEDY, "id_slot": 1, "ignore_eos": True})
    assert answer["id_slot"] == 1
    slots = get(own, "/slots")
    assert [slot["id"] for slot in slots] == [0, 1] and not slots[1]["is_processing"]
    assert slots[1]["n_prompt_tokens"] == answer["tokens_evaluated"] and slots[1]["next_token"][0]["n_decoded"] == 12
    assert slots[1]["params"]["temperature"] == 0
    saved = own.post("/slots/1?action=save", {"filename": "tale.bin"}).json()
    assert saved["n_saved"] >= answer["tokens_evaluated"] // 16 * 16 and saved["n_written"] > 1000
    engine = own.engines["stories"]
    engine.stepper.call(engine.core.pages.forget)
    assert own.post("/slots/1?action=erase", {}).json()["n_erased"] == answer["tokens_evaluated"] + 12
    restored = own.post("/slots/0?action=restore", {"filename": "tale.bin"}).json()
    assert restored["n_restored"] == saved["n_saved"] and restored["n_read"] == saved["n_written"]
    again = ask(own, "/completion", {"prompt": TALE, **GREEDY, "ignore_eos": True})
    assert again["content"] == answer["content"]
    assert again["timings"]["cache_n"] >= answer["tokens_evaluated"] // 16 * 16


def test_slots_that_are_busy(own: Live) -> None:
    body = {"prompt": "Once", "ignore_eos": True, "context_shift": True, "stream": True, "n_cmpl": 2}
    with httpx.stream("POST", f"{own.url}/completion", json=body, timeout=PATIENCE) as answer:
        lines = answer.iter_lines()
        next(lines)
        assert [slot["is_processing"] for slot in get(own, "/slots")] == [True, True]
        full = httpx.get(f"{own.url}/slots?fail_on_no_slot=1")
        assert full.status_code == 503 and full.json()["error"]["type"] == "unavailable_error"
    assert wait_for(lambda: own.idle("stories"))


@pytest.mark.parametrize(
    "name",
    [
        "../x", "a/b", "/etc/x", "", " ", ".hidden", "a..b", "a\\b", "a" * 300, "x\x00", "x\x00y", "a:b", "C:x", "..",
        "．．", "a*", "a|b", "link.bin", "no",
    ],
)  # fmt: skip
def test_slot_save_path_stays_in_its_folder(own: Live, name: str, tmp_path: Path) -> None:
    """llama.cpp #26315 and #26755: neither dots nor symbolic links lead out of the folder."""
    ask(own, "/completion", {"prompt": "Once", **GREEDY, "id_slot": 0})
    folder = Path(own.call(_config(own)).slots)
    (tmp_path / "secret").write_bytes(b"secret")
    link = folder / "link.bin"
    link.unlink(missing_ok=True)
    link.symlink_to(tmp_path / "secret")
    read = own.post("/slots/0?action=restore", {"filename": name})
    assert read.status_code == 400 and "secret" not in read.text
    if name != "no":
        assert own.post("/slots/0?action=save", {"filename": name}).status_code == 400
    assert (tmp_path / "secret").read_bytes() == b"secret" and link.is_symlink()


async def _config(own: Live) -> Config:
    return own.models._config


def test_slots_without_a_folder(live: Live) -> None:
    refused = live.post("/slots/0?action=save", {"filename": "a.bin"})
    assert refused.status_code == 400 and "--slot-save-path" in refused.json()["error"]["message"]
    assert live.post("/slots/0?action=burn", {}).json()["error"]["param"] == "action"
    assert live.post("/slots/77?action=erase", {}).json()["error"]["param"] == "id_slot"


def test_lora_adapters(own: Live) -> None:
    engine, body = own.engines["stories"], {"prompt": "Once upon a time", **GREEDY}
    assert [(x["id"], x["name"], x["scale"]) for x in get(own, "/lora-adapters")] == [(0, "one", 0.0), (1, "two", 0.0)]
    expected = {
        name: engine.generate("Once upon a time", temperature=0, max_tokens=12, adapters=scales).text
        for name, scales in (("none", {}), ("one", {"one": 1.0}), ("half", {"two": 0.5}))
    }
    assert len(set(expected.values())) == 3
    assert ask(own, "/completion", body)["content"] == expected["none"]
    assert ask(own, "/completion", body | {"lora": [{"id": 0, "scale": 1.0}]})["content"] == expected["one"]
    assert own.post("/lora-adapters", [{"id": 1, "scale": 0.5}]).json() == {"success": True}
    assert [x["scale"] for x in get(own, "/lora-adapters")] == [0.0, 0.5]
    assert ask(own, "/completion", body)["content"] == expected["half"]
    openai = {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 12}
    assert ask(own, "/v1/completions", openai)["choices"][0]["text"] == expected["half"]
    assert ask(own, "/completion", body | {"lora": []})["content"] == expected["none"]
    assert own.post("/lora-adapters", []).status_code == 200
    assert ask(own, "/completion", body)["content"] == expected["none"]
    assert own.post("/lora-adapters", [{"id": 2}]).json()["error"]["param"] == "lora"


def test_infill(own: Live) -> None:
    engine = own.engines["fim"]
    encode = engine.tokenizer.encode
    prompt = [1, 500, *encode("Once upon"), 501, *encode(" girl."), 502]
    expected = engine.generate(prompt, temperature=0, max_tokens=8).text
    around = {"input_prefix": "Once upon", "input_suffix": " girl."}
    found = ask(own, "/infill", around | {"temperature": 0, "n_predict": 8}, "fim")
    assert found["content"] == expected and found["tokens_evaluated"] == len(prompt)
    openai = {"prompt": "Once upon", "suffix": " girl.", "temperature": 0, "max_tokens": 8}
    assert ask(own, "/v1/completions", openai, "fim")["choices"][0]["text"] == expected
    ollama = {
        "prompt": "Once upon",
        "suffix": " girl.",
        "stream": False,
        "options": {"temperature": 0, "num_predict": 8},
    }
    assert ask(own, "/api/generate", ollama, "fim")["response"] == expected
    assert ask(own, "/api/generate", ollama | {"system": "x"}, "fim", 400)["error"]
    extra = ask(own, "/infill", around | {"input_extra": [{"text": "Lily"}], "prompt": " a", "n_predict": 1}, "fim")
    more = [*encode("\n\n--- snippet ---\n\n"), *encode("Lily"), *encode(" a")]
    assert extra["tokens_evaluated"] == len(prompt) + len(more)
    refused = ask(own, "/v1/completions", openai, "stories", 400)["error"]
    assert "fill in text" in refused["message"] and set(refused) == {"message", "type", "param", "code"}


def test_embedding(live: Live) -> None:
    texts = ["a llama", "an alpaca"]
    expected = live.engines["stories"].embed(texts)
    found = ask(live, "/embedding", {"content": texts})
    assert np.allclose([row["embedding"][0] for row in found], expected, atol=1e-6)
    raw = ask(live, "/embeddings", {"input": texts[0], "embd_normalize": -1})[0]["embedding"][0]
    assert np.allclose(raw, live.engines["stories"].embed(texts[0], normalize=False)[0], atol=1e-5)


def test_rerank(own: Live) -> None:
    documents = ["a ball", "Lily went to the park", "the sun is hot"]
    scores = own.engines["ranker"].rerank("Where is Lily?", documents)
    for path in ("/v1/rerank", "/v2/rerank", "/rerank"):
        body = {"query": "Where is Lily?", "documents": documents, "return_documents": True}
        found = ask(own, path, body, "ranker")
        assert [row["index"] for row in found["results"]] == np.argsort(-scores).tolist()
        assert [row["relevance_score"] for row in found["results"]] == pytest.approx(sorted(scores, reverse=True))
        assert found["results"][0]["document"]["text"] == documents[int(scores.argmax())]
        assert found["usage"]["total_tokens"] > 10
    best = ask(
        own,
        "/v1/rerank",
        {"query": "Where is Lily?", "documents": [{"text": d} for d in documents], "top_n": 1},
        "ranker",
    )
    assert len(best["results"]) == 1 and "document" not in best["results"][0]
    assert "classifier" in ask(own, "/rerank", {"query": "a", "documents": ["b"]}, "stories", 400)["error"]["message"]


def test_score(own: Live) -> None:
    ranker, stories = own.engines["ranker"], own.engines["stories"]
    raw = ranker.rerank("Where is Lily?", ["a ball", "the park"])
    body = {"text_1": "Where is Lily?", "text_2": ["a ball", "the park"]}
    found = ask(own, "/v1/score", body, "ranker")
    assert [row["score"] for row in found["data"]] == pytest.approx([1 / (1 + math.exp(-x)) for x in raw])
    plain = ask(own, "/v1/score", body | {"use_activation": False}, "ranker")["data"]
    assert [row["score"] for row in plain] == pytest.approx(raw)
    a, b = stories.embed(["a llama", "an alpaca"])
    alike = ask(own, "/v1/score", {"text_1": "a llama", "text_2": "an alpaca"})
    assert alike["data"][0]["score"] == pytest.approx(float(a @ b)) and alike["object"] == "list"
