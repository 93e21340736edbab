"""What is known of a file's SHA-256: by the catalogue, or by the Hugging Face Hub, which the file came from."""

import re
from pathlib import Path

from llamina.hub.catalogue import entry_of_file

_SHA256 = re.compile(r"[0-9a-f]{64}")


def known_sha256(path: Path) -> tuple[str, str] | None:
    """The SHA-256 that a file should have, and who says so; None if nobody does.

    The Hub's cache names files by it, and its downloads into other folders note it beside them.
    """
    if (entry := entry_of_file(path)) is not None:
        return entry.sha256, "the catalogue"
    if path.is_symlink() and (blob := path.resolve()).parent.name == "blobs" and _SHA256.fullmatch(blob.name):
        return blob.name, "the Hugging Face Hub"
    for folder in path.absolute().parents:
        notes = folder / ".cache" / "huggingface" / "download" / path.absolute().relative_to(folder)
        noted = notes.with_name(f"{notes.name}.metadata")
        if noted.is_file():
            lines = noted.read_text("utf-8", "replace").split()
            if len(lines) > 1 and _SHA256.fullmatch(lines[1]):
                return lines[1], "the Hugging Face Hub"
    return None
