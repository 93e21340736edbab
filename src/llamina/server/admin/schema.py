"""What `/admin` answers, as types."""

from typing import Any, Literal, NotRequired, TypedDict

from llamina.server.config import ModelProfile
from llamina.server.openai.schema import Progress
from llamina.server.protection.rates import Rates


class Key(TypedDict):
    id: str
    object: Literal["key"]
    name: str
    scopes: list[str]
    created: int
    expires: int | None
    rates: Rates | None
    key: NotRequired[str]  # when it is made


class KeyList(TypedDict):
    object: Literal["list"]
    data: list[Key]


class Adapter(TypedDict):
    name: str
    model: str
    path: str | None


class AdapterList(TypedDict):
    object: Literal["list"]
    data: list[Adapter]


class AdapterDeleted(TypedDict):
    name: str
    model: str
    deleted: Literal[True]


class LoadedModel(TypedDict):
    path: str
    architecture: str
    context: int
    parameters: int
    mem_bytes: int  # what its process has now
    weight_bytes: int
    device: str  # what computes, in words
    gpu_bytes: int  # of its weights, in the memory of GPUs
    pid: int | None


class ModelState(TypedDict):
    id: str
    status: str
    progress: Progress | None
    error: str | None
    inflight: int
    created: int
    last_used: int | None
    profile: ModelProfile
    loaded: NotRequired[LoadedModel]


class PullState(TypedDict):
    id: str
    model: str
    status: Literal["pulling", "failed"]
    error: str | None
    total: NotRequired[int | None]
    completed: NotRequired[int | None]


class ModelStates(TypedDict):
    object: Literal["list"]
    data: list[ModelState]
    pulls: list[PullState]


class ModelDeleted(TypedDict):
    id: str
    deleted: Literal[True]


class ModelStatus(TypedDict):
    status: str
    error: str | None


class AdminHealth(TypedDict):
    status: Literal["degraded", "ok"]
    version: str
    models: dict[str, ModelStatus]


class Memory(TypedDict):
    total: int
    available: int
    stalled: float | None
    used: float
    level: Literal["low", "medium", "high"]


class Stats(TypedDict):
    models: dict[str, dict[str, Any]]  # what each engine counts
    memory_pressure: Memory


class RequestList(TypedDict):
    object: Literal["list"]
    data: list[dict[str, Any]]  # of each sequence, what its engine tells, and the model


class Cancelled(TypedDict):
    model: str
    id: int
    cancelled: Literal[True]
