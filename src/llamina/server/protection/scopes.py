"""What each path needs of a caller's scopes. A path that is not here needs an administrator's."""

from typing import Literal

PUBLIC = ("/health", "/v1/health")  # open to everyone, with or without keys
PAGE = ("/", "/dashboard", "/favicon.ico")  # the page's files, and all below /static/: if they are open, too


def is_page(path: str) -> bool:
    """Whether it is a file of the page: the same for everyone, and nothing of a model's."""
    return path in PAGE or path.startswith("/static/")


Need = Literal["chat", "embed", "any", "look", "admin"]

# The first line that fits counts. A path that ends in "/" stands for all below it.
TABLE: tuple[tuple[str, Need], ...] = (
    ("/admin/", "admin"),
    ("/metrics", "admin"),
    ("/slots", "admin"),
    ("/slots/", "admin"),
    # for everyone to look at, and for administrators to change
    ("/props", "look"),
    ("/lora-adapters", "look"),
    # whatever key: models and documentation
    ("/v1/models", "any"),
    ("/v1/models/", "any"),
    ("/models", "any"),
    ("/api/tags", "any"),
    ("/api/show", "any"),
    ("/api/ps", "any"),
    ("/api/version", "any"),
    ("/tokenizer_info", "any"),
    ("/openapi.json", "any"),
    ("/docs", "any"),
    ("/docs/", "any"),
    ("/", "any"),
    ("/static/", "any"),
    ("/dashboard", "any"),
    ("/favicon.ico", "any"),
    # vectors and scores
    ("/v1/embeddings", "embed"),
    ("/embedding", "embed"),
    ("/embeddings", "embed"),
    ("/api/embed", "embed"),
    ("/api/embeddings", "embed"),
    ("/v1/rerank", "embed"),
    ("/v1/reranking", "embed"),
    ("/rerank", "embed"),
    ("/reranking", "embed"),
    ("/v2/rerank", "embed"),
    ("/v1/score", "embed"),
    ("/score", "embed"),
    # text
    ("/v1/", "chat"),
    ("/api/chat", "chat"),
    ("/api/generate", "chat"),
    ("/completion", "chat"),
    ("/completions", "chat"),
    ("/chat/completions", "chat"),
    ("/audio/transcriptions", "chat"),
    ("/infill", "chat"),
    ("/tokenize", "chat"),
    ("/detokenize", "chat"),
    ("/apply-template", "chat"),
)
READING = ("GET", "HEAD", "OPTIONS")


def scope_for(path: str, method: str) -> str | None:
    """The scope that a request needs; None: any caller's will do."""
    reads = method in READING
    match next((need for known, need in TABLE if _fits(path, known)), "admin"):
        case "any":
            return None
        case "embed":
            return "embed:read"
        case "look" if reads:
            return None
        case "chat":
            return "chat:read" if reads else "chat:write"
    return "admin:read" if reads else "admin:write"


def _fits(path: str, known: str) -> bool:
    return path == known or (known.endswith("/") and known != "/" and path.startswith(known))
