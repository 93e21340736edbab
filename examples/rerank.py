"""Documents sorted by how well they answer a question, by a model that reads both together.

    python examples/rerank.py "what do llamas eat?"
    python examples/rerank.py "which file is about memory?" --model reranker.gguf < list.txt

A reranker is slower than embeddings and judges better: let search.py find fifty, and this choose three. The model must
have a classifier, as Qwen3-Reranker and bge-reranker have.
"""

import argparse
import sys

import llamina

DOCUMENTS = """\
Llamas graze on grass, hay and shrubs, and chew the cud.
The Eiffel Tower is 330 metres tall.
A llama can carry about a quarter of its weight.
Sheep and goats eat much the same plants.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question")
    parser.add_argument("--model", default="ggml-org/Qwen3-Reranker-0.6B-Q8_0-GGUF", help="a GGUF file, or user/repo")
    parser.add_argument("--top", type=int, default=3)
    args = parser.parse_args()
    piped = "" if sys.stdin.isatty() else sys.stdin.read()
    documents = (piped or DOCUMENTS).splitlines()

    with llamina.load(args.model) as engine:
        scores = engine.rerank(args.question, documents)
    low, high = min(scores), max(scores)
    for score, document in sorted(zip(scores, documents, strict=True), reverse=True)[: args.top]:
        bar = "█" * round(20 * (score - low) / ((high - low) or 1))
        print(f"{score:9.4f} {bar:20} {document}")


if __name__ == "__main__":
    main()
