"""Search by meaning: an embedding for every paragraph of a folder, and those nearest to a question.

    python examples/search.py docs "how do I save memory?"

Vectors are kept beside the texts (`.vectors.npz`): the second search computes the question alone.
"""

import argparse
import re
import textwrap
from pathlib import Path

import numpy as np

import llamina

DOCUMENT, QUERY = "search_document: ", "search_query: "  # what nomic-embed-text was trained to be told
PARAGRAPH = re.compile(r"(?:#.*\n\s*)*(?:.+\n)+")  # with the headings right above it
LONGEST = 1000  # characters of a piece; longer paragraphs are several


def pieces(folder: Path) -> list[str]:
    """`file: text` of every paragraph of the Markdown and text files in a folder."""
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".md", ".txt"))
    found = [(path, part) for path in files for part in PARAGRAPH.findall(path.read_text("utf-8") + "\n")]
    return [f"{path.relative_to(folder)}: {text}" for path, part in found for text in textwrap.wrap(part, LONGEST)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("question")
    parser.add_argument("--model", default="nomic-embed-text", help="a GGUF file, or a name of `llamina list --all`")
    parser.add_argument("--top", type=int, default=3)
    args = parser.parse_args()

    texts, kept = pieces(args.folder), args.folder / ".vectors.npz"
    with llamina.load(args.model) as engine:
        saved = np.load(kept) if kept.exists() else None
        if saved is None or saved["texts"].tolist() != texts or saved["model"] != args.model:
            vectors = engine.embed([DOCUMENT + text for text in texts])  # [pieces, width], of length 1
            np.savez(kept, texts=texts, vectors=vectors, model=args.model)
            saved = np.load(kept)
        scores = saved["vectors"] @ engine.embed(QUERY + args.question)[0]  # cosines
    for best in np.argsort(-scores)[: args.top]:
        print(f"\n{scores[best]:.3f}  {textwrap.shorten(texts[best], 300)}")


if __name__ == "__main__":
    main()
