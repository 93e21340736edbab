"""How a server is set up. Flags, environment variables and their documentation are made from these structs."""

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from llamina.backends import KV_TYPES, KvType
from llamina.places import data_dir
from llamina.server.protection.rates import Rates
from llamina.server.protection.settings import ApiKey, Jwt


def about(text: str, **limits: Any) -> Meta:
    """What a setting is for, and its range."""
    return Meta(description=text, **limits)


Bytes = Annotated[int, Meta(extra={"unit": "bytes"}, ge=0)]
Index = Annotated[int, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(extra={"unit": "seconds"})]


class Limits(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What a client may send and hold."""

    body_bytes: Annotated[Bytes, about("Largest body of a request.")] = 10 << 20
    messages: Annotated[int, about("Messages of a conversation.", ge=1)] = 4096
    tools: Annotated[int, about("Tools of a request.", ge=0)] = 128
    depth: Annotated[int, about("Lists and objects in each other.", ge=1)] = 100
    schema_bytes: Annotated[Bytes, about("Largest JSON schema.")] = 128 << 10
    grammar_bytes: Annotated[Bytes, about("Largest grammar, or list of choices.")] = 64 << 10
    regex_bytes: Annotated[Bytes, about("Largest regular expression.")] = 16 << 10
    stop_strings: Annotated[int, about("Stop strings of a request.", ge=0)] = 16
    stop_length: Annotated[int, about("Characters of a stop string.", ge=1)] = 256
    logit_bias: Annotated[int, about("Tokens of a logit_bias, banned tokens, bad words.", ge=0)] = 1024
    adapters: Annotated[int, about("LoRA adapters that act at the same time.", ge=0)] = 16
    answers: Annotated[int, about("Answers to one prompt (n).", ge=1)] = 16
    top_logprobs: Annotated[int, about("Alternatives that are told of each token (top_logprobs).", ge=0)] = 20
    inputs: Annotated[int, about("Texts of one request for embeddings.", ge=1)] = 2048
    file_bytes: Annotated[Bytes, about("Largest file that is uploaded.")] = 512 << 20
    batch_lines: Annotated[int, about("Lines of a batch.", ge=1)] = 50_000
    batch_pending_bytes: Annotated[Bytes, about("Inputs of all batches that have not ended.")] = 1 << 30


class ModelDefaults(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """How models are loaded whose profile does not say."""

    context: Annotated[
        Count | None, about("Tokens of context of a sequence; by default the trained one, at most 8192.")
    ] = None
    threads: Annotated[Count | None, about("Threads of a model's process; by default all usable cores.")] = None
    backend: Annotated[str | None, about("What computes: auto, cpu, cuda or reference; by default auto.")] = None
    device: Annotated[Index | None, about("With a GPU: its number.")] = None
    gpu_layers: Annotated[
        Annotated[int, Meta(ge=-1)] | Literal["auto", "all"] | None,
        about("With a GPU: how many of the last layers it computes; by default auto, those that fit its memory."),
    ] = None
    tensor_parallel: Annotated[
        Count | None, about("Divide every layer among so many GPUs, from `device` on; by default 1.")
    ] = None
    exact: Annotated[
        bool | None,
        about("With a GPU: a token's bits do not depend on what else is computed with it; by default false."),
    ] = None
    kv_type: Annotated[
        KvType | None, about(f"Format of the KV cache: {', '.join(KV_TYPES)}; by default {KV_TYPES[0]}.")
    ] = None
    max_sequences: Annotated[Count | None, about("Sequences that are computed at a time; by default 16.")] = None
    max_waiting: Annotated[
        Count | None, about("Requests that may wait for their turn; beyond, the answer is 503. By default 4096.")
    ] = None
    step_tokens: Annotated[
        Count | None,
        about(
            "Most tokens that one step computes; fewer take less memory. "
            "By default 512; on a GPU 2048 while nobody generates."
        ),
    ] = None
    cache_tokens: Annotated[
        Count | None, about("Size of the KV cache in tokens; by default what memory allows, at most all contexts.")
    ] = None
    huge_pages: Annotated[
        bool | None,
        about("On Linux: copy weights into huge pages, if half of the free memory holds them; by default true."),
    ] = None
    quantize: Annotated[
        str | None, about("Load a copy in fewer bits, such as q4_k; it is made once, and kept in the cache.")
    ] = None
    quantize_tensors: Annotated[
        dict[str, str] | None, about("With `quantize`: types of tensors by regular expressions found in their names.")
    ] = None
    quantize_imatrix: Annotated[
        str | None, about("With `quantize`: importance matrix, which types below Q3_K need.")
    ] = None
    requantize: Annotated[
        bool | None, about("With `quantize`: also of models that are quantized already; by default false.")
    ] = None
    offload: Annotated[
        Literal["none", "budget", "pinned"] | None,
        about(
            "Read weights from the file when they are needed; the latest used stay in memory (budget), or always the "
            "same (pinned). By default none."
        ),
    ] = None
    memory_budget: Annotated[Bytes | None, about("With `offload`: most memory for weights.")] = None
    pinned: Annotated[
        list[int | Literal["embeddings", "output"]] | None,
        about("With `offload` pinned: layers that stay in memory first, below 0 from the end; embeddings, output."),
    ] = None
    prefetch: Annotated[
        Index | None, about("With `offload`: parts of the model that are read ahead; by default 1.")
    ] = None
    picture_hosts: Annotated[
        list[str] | None,
        about("Hosts that pictures are fetched from where clients give web addresses; by default none."),
    ] = None
    keep_alive: Annotated[
        Seconds | None,
        about("Time without a request after which a model is unloaded; by default, and below 0, it is kept."),
    ] = None
    sampling: Annotated[
        dict[str, Any], about("Sampling parameters of requests that leave them out, under the engine's names.")
    ] = {}


class ModelProfile(ModelDefaults, forbid_unknown_fields=True, frozen=True):
    """One model: a file or a name, and how it is loaded."""

    model: Annotated[str, about("A GGUF file, or the name of a model; by default the profile's own name.")] = ""
    aliases: Annotated[list[str], about("Other names that clients may use.")] = []
    draft: Annotated[str | None, about("A smaller model that drafts tokens (speculative decoding).")] = None
    mmproj: Annotated[
        str | None,
        about("The encoder of pictures or sounds that belongs to the model; by default the mmproj file beside it."),
    ] = None
    adapters: Annotated[dict[str, str], about("LoRA adapters that requests may name: names and files.")] = {}
    tokenizer: Annotated[
        str | None, about("A tokenizer.json, GGUF file or folder whose vocabulary takes the place of the model's own.")
    ] = None
    chat_template: Annotated[
        str | None,
        about("A chat template in place of the model's own: Jinja, a file that holds it, or a name such as chatml."),
    ] = None
    rope: Annotated[
        dict[str, Any], about("RoPE settings in place of the file's, under the names of `llamina.load`'s options.")
    ] = {}

    def load_options(self) -> dict[str, object]:
        """The options of `llamina.load` that are given."""
        given = {name: value for name in LOADED if (value := getattr(self, name)) is not None}
        named = {"pin": self.pinned, "sampling": self.sampling}  # LLAMINA_PIN is about threads
        return given | self.rope | {name: value for name, value in named.items() if value}

    def over(self, defaults: ModelDefaults) -> "ModelProfile":
        """This profile, with the defaults for what it leaves out."""
        names = [name for name in ModelDefaults.__struct_fields__ if getattr(self, name) is None]
        given: dict[str, Any] = {name: getattr(defaults, name) for name in names}
        return msgspec.structs.replace(self, **given, sampling={**defaults.sampling, **self.sampling})


LOADED = (
    "context", "threads", "backend", "device", "gpu_layers", "tensor_parallel", "exact", "kv_type", "max_sequences",
    "max_waiting", "step_tokens", "cache_tokens", "huge_pages", "draft", "mmproj", "picture_hosts", "tokenizer",
    "chat_template", "quantize", "quantize_tensors", "quantize_imatrix", "requantize", "offload", "memory_budget",
    "prefetch",
)  # fmt: skip


class Config(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A server's settings. The defaults serve one machine's own user."""

    host: Annotated[str, about("The address to listen on.")] = "127.0.0.1"
    port: Annotated[int, about("The port to listen on; 0: any free one.", ge=0, le=65535)] = 8080
    models: dict[str, ModelProfile] = {}
    defaults: ModelDefaults = ModelDefaults()
    load: Annotated[bool, about("Load the first model at start; else when it is asked for.")] = True
    max_models: Annotated[int, about("Models loaded at once; the least recently used makes room.", ge=1)] = 4
    memory: Annotated[
        Bytes, about("Memory for all loaded models; the least recently used makes room. 0: without a limit.")
    ] = 0
    grace: Annotated[Seconds, about("Time for answers under way to end at shutdown.", ge=0)] = 10.0
    log_format: Annotated[Literal["text", "json"], about("How the log is written: a line for each request.")] = "text"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], about("What is logged; requests are told at info.")
    ] = "info"
    log_prompts: Annotated[bool, about("Whether prompts and answers are logged, too, at info.")] = False
    otel: Annotated[
        str, about("Where OpenTelemetry traces are sent by OTLP over HTTP, as http://HOST:4318; empty: nowhere.")
    ] = ""
    limits: Limits = Limits()
    batch_concurrency: Annotated[
        int, about("Lines of batches that are answered at a time, behind all other requests.", ge=1)
    ] = 8
    data: Annotated[str, about("The folder of files and of the database; by default the user's data folder.")] = ""
    slots: Annotated[
        str, about("The folder that slots are saved to and restored from; without one they cannot be.")
    ] = ""
    database: Annotated[
        str,
        about("sqlite:///FILE or postgresql://USER@HOST/NAME; by default SQLite in the data folder."),
    ] = ""
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
    open_page: Annotated[
        bool, Meta(description="Whether the page's files need no key: it asks for one, and holds nothing by itself.")
    ] = False
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
