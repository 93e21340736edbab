"""How a server is set up."""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from llamina.places import data_dir
from llamina.server.protection.rates import Rates
from llamina.server.protection.settings import ApiKey, Jwt


class Limits(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What a client may send and hold."""

    body_bytes: int = 10 << 20
    messages: int = 4096
    tools: int = 128
    depth: int = 100  # of lists and objects in each other
    schema_bytes: int = 128 << 10
    grammar_bytes: int = 64 << 10  # and lists of choices
    regex_bytes: int = 16 << 10
    stop_strings: int = 16
    stop_length: int = 256
    logit_bias: int = 1024  # and banned tokens
    adapters: int = 16  # LoRAs that act at the same time
    answers: int = 16  # n
    top_logprobs: int = 20
    inputs: int = 2048  # of one embeddings request


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
    data: str = ""  # the folder of files and of the database; by default the user's data folder
    database: str = ""  # a URL: sqlite:///FILE or postgresql://USER@HOST/NAME; by default SQLite in the data folder
    # protection
    api_keys: Annotated[list[str], Meta(description="Keys of clients, or sha256:HASH of them.")] = []
    keys: list[ApiKey] = []  # the same with names, scopes, ends and rates
    admin_key: Annotated[str, Meta(description="A key, or sha256:HASH of it, for everything, /admin too.")] = ""
    jwt: Jwt | None = None
    rates: Rates = Rates()  # of all callers together
    key_rates: Rates = Rates()  # of each key that has none of its own
    max_concurrent: Annotated[
        int, Meta(description="Requests under way at a time; beyond, the answer is 503.", ge=1)
    ] = 64
    timeout: Annotated[
        float, Meta(description="Seconds for the body of a request to come, and for one answer.", gt=0)
    ] = 300.0
    hosts: Annotated[
        list[str],
        Meta(description="Names that clients may call the server by; by default local ones if it listens locally."),
    ] = []
    cors_origins: Annotated[
        list[str], Meta(description="Origins of web pages that may use the server from a browser.")
    ] = []
    cors_credentials: Annotated[bool, Meta(description="Whether browsers may send cookies along.")] = False
    certfile: Annotated[str, Meta(description="TLS: the certificate, a PEM file.")] = ""
    keyfile: Annotated[str, Meta(description="TLS: the certificate's private key, a PEM file.")] = ""
    share_prefixes: Annotated[
        bool,
        Meta(description="Whether keys share the KV cache of common prefixes: faster, but one can probe another's."),
    ] = False
    admin_host: Annotated[str, Meta(description="The address of /admin; empty: there is none.")] = "127.0.0.1"
    admin_port: Annotated[
        int | None, Meta(description="The port of /admin; 0: there is none. By default 8081, if it is free.")
    ] = None

    @property
    def data_folder(self) -> Path:
        return Path(self.data).expanduser() if self.data else data_dir()

    @property
    def database_url(self) -> str:
        return self.database or f"sqlite:///{self.data_folder / 'llamina.db'}"
