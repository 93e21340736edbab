"""How a server is set up."""

from pathlib import Path
from typing import Annotated

import msgspec

from llamina.places import data_dir


class Limits(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What a client may send and hold."""

    body_bytes: int = 10 << 20
    messages: int = 4096
    tools: int = 128
    schema_bytes: int = 256 << 10
    grammar_bytes: int = 256 << 10
    stop_strings: int = 16
    stop_length: int = 256
    logit_bias: int = 1024
    answers: int = 16  # n
    top_logprobs: int = 20
    inputs: int = 2048  # of one embeddings request
    file_bytes: int = 512 << 20  # of an uploaded file
    batch_lines: int = 50_000
    batch_pending_bytes: int = 1 << 30  # inputs of all batches that have not ended


class ModelProfile(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One model: a file or a name, and how it is loaded."""

    model: str
    aliases: list[str] = []
    context: int | None = None
    threads: int | None = None
    backend: str | None = None
    kv_type: str | None = None
    max_sequences: int | None = None
    cache_tokens: int | None = None
    draft: str | None = None
    adapters: dict[str, str] = {}  # names and files of LoRAs
    sampling: dict[str, float | int | str | bool] = {}
    keep_alive: float | None = None  # seconds without a request after which it is unloaded; None: never

    def load_options(self) -> dict[str, object]:
        """The options of `llamina.load` that are given."""
        names = ("context", "threads", "backend", "kv_type", "max_sequences", "cache_tokens", "draft")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


class Config(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A server's settings. The defaults serve one machine's own user."""

    host: str = "127.0.0.1"
    port: int = 8080
    models: dict[str, ModelProfile] = {}
    max_models: int = 4  # loaded at once; the least recently used makes room
    limits: Limits = Limits()
    # lines of batches that are answered at a time, behind all other requests
    batch_concurrency: Annotated[int, msgspec.Meta(ge=1)] = 8
    data: str = ""  # the folder of files and of the database; by default the user's data folder
    slots: str = ""  # the folder that slots are saved to and restored from; without one they cannot be
    database: str = ""  # a URL: sqlite:///FILE or postgresql://USER@HOST/NAME; by default SQLite in the data folder

    @property
    def data_folder(self) -> Path:
        return Path(self.data).expanduser() if self.data else data_dir()

    @property
    def database_url(self) -> str:
        return self.database or f"sqlite:///{self.data_folder / 'llamina.db'}"
