"""Files that we quantize, run by llama.cpp: they have the perplexity that llama-quantize's have."""

from pathlib import Path

import numpy as np
import pytest

import llamina
from llamina.bench.perplexity import estimate
from llamina.gguf import open_model
from llamina.tokenizer import Tokenizer
from tales import TALE

WINDOW = 256
# llama-quantize (ggml 0c1e570) --allow-requantize SmolLM2-135M-Instruct.Q4_1.gguf out.gguf Q4_K_M, then
# llama-perplexity -m out.gguf -f tale.txt -c 256 --chunks 1, where tale.txt is TALE and a newline.
PERPLEXITY = 1.6805


def test_perplexity_in_llama_cpp(smollm2: Path, tmp_path: Path) -> None:
    from convert_peer import Peer

    path = tmp_path / "out.gguf"
    llamina.quantize(smollm2, path, "Q4_K_M", requantize=True)
    with open_model(path) as file:
        tokens = Tokenizer.from_metadata(file.metadata).encode(TALE)[:WINDOW]
    peer = Peer(path, WINDOW)
    try:
        logits = peer.logits(tokens).astype(np.float64)
    finally:
        peer.close()
    logs = (
        logits
        - np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1, keepdims=True))
        - logits.max(1, keepdims=True)
    )
    scored = range(WINDOW // 2, WINDOW - 1)
    found = estimate([float(logs[i, tokens[i + 1]]) for i in scored])
    assert found.perplexity == pytest.approx(PERPLEXITY, rel=5e-3)
