"""A second real model: windows, normed queries and keys, a SentencePiece vocabulary, five formats in one file."""

from pathlib import Path

import llamina
from skips import import_peer


def test_gemma_continues_as_llama_cpp_does(gemma3: Path) -> None:
    xllamacpp = import_peer("xllamacpp")
    prompt, n = "The capital of France is", 10  # the next choice is a tie even without rounding: 16.91 against 16.90
    with llamina.load(gemma3, context=256, threads=2) as engine:
        ours = engine.generate(prompt, max_tokens=n, temperature=0).text
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.verbosity = str(gemma3), 256, -1
    answer = xllamacpp.Server(params).handle_completions({"prompt": prompt, "n_predict": n, "temperature": 0})
    assert ours == answer["choices"][0]["text"]
    assert "France" in ours
