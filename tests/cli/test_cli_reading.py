"""`llamina embed`, `llamina rerank` and `llamina perplexity`."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

import llamina
from llamina.bench.perplexity import measure_perplexity
from lora_files import draw, save

Invoke = Callable[..., Result]


def test_embed(invoke: Invoke, stories: Path) -> None:
    texts = ["Once upon a time", "The sun"]
    with llamina.load(stories) as engine:
        expected = engine.embed(texts)
        raw = engine.embed(texts, pooling="mean", normalize=False)
    plain = invoke("embed", *texts, "-m", stories, "-q")
    assert plain.exit_code == 0 and plain.stderr == ""
    assert np.allclose([[float(x) for x in line.split()] for line in plain.stdout.splitlines()], expected, atol=1e-6)
    assert invoke("embed", "-m", stories, "-q", input="Once upon a time\n\nThe sun\n").stdout == plain.stdout
    told = json.loads(invoke("embed", *texts, "-m", stories, "--json", "--pooling", "mean", "--no-normalize").stdout)
    assert told["pooling"] == "mean"
    assert [row["index"] for row in told["embeddings"]] == [0, 1] and told["embeddings"][0]["tokens"] == 5
    assert np.array_equal(np.array([row["embedding"] for row in told["embeddings"]], np.float32), raw)


def test_how_a_model_is_loaded(
    invoke: Invoke, stories: Path, ranker: Path, golden: Callable[[str], Path], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Quantized on the way, or read from the file, by every verb."""
    monkeypatch.setattr("llamina.quantization.cached.cache_dir", lambda: tmp_path)
    quantized = ["--quantize-on-load", "q4_0", "--quantize-imatrix", golden("stories260K_imatrix.gguf")]
    offload = ["--offload", "pinned", "--memory-budget", "1G", "--pin", "output,-1", "--prefetch", "0"]
    text = "Once upon a time there was a little girl. She liked to play."
    with llamina.load(stories, quantize="q4_0", quantize_imatrix=quantized[-1]) as engine:
        few, perplexity = (
            engine.embed([text]),
            measure_perplexity(engine, text, 8, lambda *step: None).estimate.perplexity,
        )
    with llamina.load(stories) as engine:
        whole = engine.embed([text])
    common = ("embed", text, "-m", stories, "--json", "-q")
    for flags, expected in (([], whole), (offload, whole), (quantized, few)):
        told = json.loads(invoke(*common, *flags).stdout)["embeddings"][0]["embedding"]
        assert np.array_equal(np.array([told], np.float32), expected)
    against = invoke("perplexity", "-m", stories, "-c", 8, "--json", *quantized, "--kl", stories, input=text)
    told = json.loads(against.stdout)
    assert told["kl"]["mean"] > 0 and told["perplexity"] == pytest.approx(perplexity), "the base is as it is"
    asked: list[dict[str, object]] = []
    load = llamina.engine.load
    monkeypatch.setattr("llamina.engine.load", lambda file, **given: asked.append(given) or load(file, **given))
    assert invoke("rerank", "a", "b", "-m", ranker, *offload).exit_code == 0
    wanted = {"offload": "pinned", "memory_budget": 1 << 30, "pin": ["output", -1], "prefetch": 0}
    assert {name: asked[0][name] for name in wanted} == wanted
    refused = invoke("chat", "--url", "http://127.0.0.1:1", *quantized)
    assert refused.exit_code == 2 and "leave --quantize-on-load, --quantize-imatrix out" in refused.stderr


def test_adapters_are_read_with(invoke: Invoke, ranker: Path, tmp_path: Path) -> None:
    names = [f"blk.{layer}.ffn_down.weight" for layer in range(5)]
    lora, text = save(tmp_path / "lora.gguf", "llama", draw(ranker, names, 4, 1, 1.0)), "Once upon a time"
    with llamina.load(ranker) as engine:
        use = {engine.load_adapter(lora): 0.5}
        vector, score = engine.embed(text, pooling="mean", adapters=use)[0], engine.rerank(text, ["x"], adapters=use)[0]
        perplexity = engine.perplexity(text, adapters=use)
        assert perplexity != engine.perplexity(text)
    common = ("-m", ranker, "--lora", f"{lora}=0.5", "--json")
    told = json.loads(invoke("embed", text, "--pooling", "mean", *common).stdout)
    assert np.array_equal(np.array(told["embeddings"][0]["embedding"], np.float32), vector)
    assert json.loads(invoke("rerank", text, "x", *common).stdout)["results"][0]["score"] == score
    overlap = ("perplexity", "--method", "overlap")
    assert json.loads(invoke(*overlap, *common, input=text).stdout)["perplexity"] == perplexity
    small = ("perplexity", "-m", ranker, "-c", "4", "--json")
    plain, adapted = (json.loads(invoke(*small, *more, input=text * 4).stdout) for more in ([], common[2:4]))
    assert plain["perplexity"] != adapted["perplexity"]
    refused = invoke("perplexity", "-m", ranker, "--lora", "/no/such/file", input=text)
    assert refused.exit_code == 2 and "/no/such/file does not exist" in refused.stderr


def test_rerank(invoke: Invoke, ranker: Path) -> None:
    documents = ["a ball", "Lily went to the park", "the sun is hot"]
    with llamina.load(ranker) as engine:
        scores = engine.rerank("Where is Lily?", documents)
        prompt = engine.tokenizer.encode("Q: Where is Lily? A: a ball", parse_special=True)
        assert scores[0] == engine.embed(prompt)[0, 0], "by the file's template and its pooling"
        odd = engine.embed(engine.encode("Q: {document} A: x", add_special=False))
        assert engine.rerank("{document}", ["x"])[0] == odd[0, 0], "what a query says is not part of the template"
    told = json.loads(invoke("rerank", "Where is Lily?", *documents, "-m", ranker, "--json").stdout)
    assert [row["index"] for row in told["results"]] == np.argsort(-scores).tolist()
    assert [row["score"] for row in told["results"]] == pytest.approx(sorted(scores, reverse=True))
    best = invoke("rerank", "Where is Lily?", "-n", "1", "-m", ranker, "-q", input="\n".join(documents))
    assert best.stdout == f"{scores.max():10.6f}  {documents[int(scores.argmax())]}\n"


def test_perplexity(invoke: Invoke, stories: Path, tmp_path: Path) -> None:
    """llama.cpp's definition, without the newline at the end of the file."""
    tale = "Once upon a time, there was a little girl. She went to the park. The sun was hot."
    (tmp_path / "tale.txt").write_text(f"{tale}\n")
    with llamina.load(stories, context=8) as engine:
        expected = measure_perplexity(engine, tale, 8, lambda done, total: None)
    told = json.loads(
        invoke("perplexity", tmp_path / "tale.txt", "-m", stories, "-c", "8", "--json", "--tokens").stdout
    )
    whole = expected.estimate
    assert told == {
        "method": "llama.cpp",
        "perplexity": whole.perplexity,
        "error": whole.error,
        "tokens": whole.count,
        "windows": expected.windows,
        "window": 8,
        "token_ids": expected.tokens,
        "logprobs": expected.logprobs,
    }
    piped = invoke("perplexity", "-m", stories, "-q", "-c", "8", input=tale)
    line = f"perplexity {whole.perplexity:.4f} ± {whole.error:.5f} of {whole.count} tokens, the second halves of"
    assert piped.stdout == f"{line} {expected.windows} windows of 8\n" and piped.stderr == ""


def test_perplexity_of_a_short_text(invoke: Invoke, stories: Path) -> None:
    result = invoke("perplexity", "-m", stories, input="Once upon a time")
    assert result.exit_code == 2 and "two windows of 512 are needed" in result.stderr
    assert "--method overlap" in result.stderr


def test_perplexity_of_overlapping_windows(invoke: Invoke, stories: Path, tmp_path: Path) -> None:
    (tmp_path / "tale.txt").write_text("Once upon a time, there was a little girl.")
    with llamina.load(stories) as engine:
        expected = engine.token_scores("Once upon a time, there was a little girl.")
    common = ("perplexity", "--method", "overlap", "-m", stories, "--tokens")
    told = json.loads(invoke(*common, tmp_path / "tale.txt", "--json").stdout)
    assert told == {
        "method": "overlap",
        "perplexity": expected.perplexity,
        "tokens": len(expected.tokens),
        "token_ids": expected.tokens,
        "logprobs": expected.logprobs,
    }
    piped = invoke(*common, "-q", input="Once upon a time, there was a little girl.")
    lines = piped.stdout.splitlines()
    assert lines[-1] == f"perplexity {expected.perplexity:.4f} of {len(expected.tokens)} tokens"
    assert [float(line.split()[0]) for line in lines[:-1]] == pytest.approx(expected.logprobs, abs=1e-4)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["embed"], 2, "no text is given"),
        (["embed", "x", "--pooling", "median"], 2, "median"),
        (["embed", "x", "--pooling", "rank"], 1, "no classifier"),
        (["embed", "x" * 4000], 2, "the context holds"),
        (["rerank", "x"], 2, "no document is given"),
        (["rerank", "x", "y"], 1, "no classifier"),
        (["perplexity"], 2, "no text is given"),
        (["perplexity", "/no/such/file"], 2, "No such file"),
    ],
)
def test_mistakes(invoke: Invoke, stories: Path, arguments: list[str], code: int, message: str) -> None:
    result = invoke(*arguments, "-m", stories, "-q")
    assert result.exit_code == code and message in result.stderr and result.stdout == ""
