"""A model made ready to run: its plan compiled, memory for the KV cache and states, room for adapters."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import Any, Literal

from llamina.adapters import Adapter
from llamina.backends import STEP_TOKENS, Backend, Capacity, KvType, Program, check_kv_type
from llamina.backends.host import usable_cores
from llamina.cache import Pages, WindowPool
from llamina.engine.embedded import Embedded
from llamina.engine.limits import Limits
from llamina.engine.runner.adapters import Adapters
from llamina.engine.runner.devices import GpuLayers, choose_backend, divide_backend, parts_of
from llamina.engine.runner.encoders import MediaEncoder
from llamina.engine.runner.memory import Wanted, find_room
from llamina.engine.runner.programs import Programs
from llamina.engine.samplers import Samplers
from llamina.engine.schedule import Budget
from llamina.errors import CapacityError, RequestError, UnsupportedModel, check_whole
from llamina.gguf import GGUF, fingerprint
from llamina.models import Decoder
from llamina.ops.batch import PAGE, Batch
from llamina.plan import Plan, record
from llamina.tokenizer import Tokenizer, template_source, vocabulary_of, with_template

HUGE_FROM = 32 << 20  # bytes of weights; fewer stay in caches
LOGITS_BYTES = 256 << 20  # address space for one step's logits; only what is used becomes resident


class ModelRunner:
    """What a file becomes when it is loaded. It knows of no requests."""

    def __init__(
        self,
        file: GGUF,
        model: Decoder,
        *,
        backend: str = "auto",
        device: int | None = None,
        stream: int | None = None,
        exact: bool = False,
        threads: int | None = None,
        kv_type: KvType = "f16",
        step_tokens: int | None = None,
        max_sequences: int = 16,
        cache_tokens: int | None = None,
        offload: Literal["none", "budget", "pinned"] = "none",
        memory_budget: int | None = None,
        pin: Sequence[int | Literal["embeddings", "output"]] | None = None,
        prefetch: int | None = None,
        huge_pages: bool = True,
        gpu_layers: GpuLayers | None = None,
        tensor_parallel: int = 1,
        sampling: Mapping[str, Any] | None = None,
        tokenizer: str | os.PathLike[str] | None = None,
        chat_template: str | None = None,
        mmproj: str | os.PathLike[str] | None = None,
        picture_hosts: Sequence[str] | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> None:
        check_whole("step_tokens", step_tokens, 1, optional=True)
        check_whole("max_sequences", max_sequences, 1, optional=True)
        check_whole("cache_tokens", cache_tokens, 1, optional=True)
        check_whole("tensor_parallel", tensor_parallel, 1, optional=True)
        self.file = file
        self.model = model
        self.kv_type = kv_type
        self.context = model.config.context
        self.sampling = dict(sampling or {})  # parameters that requests have unless they say otherwise
        self._vocabulary = tokenizer
        self._chat_template = None if chat_template is None else template_source(chat_template)
        self.plan: Plan = record(model.forward)
        if self.plan.causal != model.causal:
            key = f"{model.config.architecture}.attention.causal"
            raise UnsupportedModel(f"{key} is {model.causal}: that variant of the architecture is not known here")
        self.adapters = Adapters(file.metadata, self.plan)
        self.weight_bytes = sum(tensor.nbytes for tensor in file.tensors.values())
        whole, beside = not model.causal, step_tokens or STEP_TOKENS
        wanted = Wanted(self.context, max_sequences, beside, kv_type, cache_tokens)
        how: dict[str, Any] = {"threads": threads, "offload": offload, "memory_budget": memory_budget}
        how |= {"device": device, "stream": stream, "exact": exact}
        how |= {"pin": pin, "prefetch": prefetch}
        self.backend: Backend
        if tensor_parallel == 1:
            self.backend = choose_backend(backend, self.plan, wanted, gpu_layers, **how)
        elif gpu_layers is None:
            self.backend = divide_backend(backend, tensor_parallel, **how)
        else:
            message = f"gpu_layers is {gpu_layers!r} and tensor_parallel is {tensor_parallel}: give one of them"
            raise RequestError(message, "gpu_layers")
        check_kv_type(self.backend, kv_type)
        step_tokens = step_tokens or (max(self.context, STEP_TOKENS) if whole else self.backend.step_tokens)
        wanted = replace(wanted, step=step_tokens)
        hosts = picture_hosts or ()
        encoding = (file.source, mmproj, self.backend, model.row_width, progress)
        self.pictures = MediaEncoder("vision", *encoding, hosts)
        self.sounds = MediaEncoder("audio", *encoding)
        free = self.backend.free_bytes()
        stay = self.backend.weight_bytes(self.weight_bytes) == self.weight_bytes <= free
        if stay:
            file.read_ahead()
        room = find_room(parts_of(self.backend, self.plan, self.weight_bytes), wanted)
        if huge_pages and stay and self.backend.name == "cpu" and HUGE_FROM <= self.weight_bytes <= free // 2:
            file.use_huge_pages(usable_cores(), progress)
        windows = WindowPool(room.window_pages, room.reach)
        self.pages = Pages(room.pages, max_sequences, room.checkpoints, windows, sharing=model.causal)
        slots = max_sequences + (room.checkpoints or 0)
        self.capacity = Capacity(room.pages, slots, kv_type, room.window_pages)
        outputs = max(1, min(step_tokens, LOGITS_BYTES // (4 * self.plan.vocab)))
        sequences = min(max_sequences, outputs)  # a token for each in every step
        self.budget = Budget(step_tokens, outputs, sequences, whole, None if whole else beside)
        self.batch = Batch(step_tokens, outputs, max_sequences, -(-self.context // PAGE), model.row_width)
        vocab = model.embeddings.shape[0]
        self.limits = Limits(self.context, PAGE * self.pages.total, vocab, outputs if whole else None)
        self._closed = False
        self._progress = progress
        self.compiling = RLock()  # one change of programs at a time, whoever makes it
        self.programs = Programs(model, self.plan, self.adapters, self._compile, self.compiling)

    def _compile(self, plan: Plan, before: Program | None) -> Program:
        return self.backend.compile(plan, self.batch, self.capacity, self._progress, before)

    @property
    def program(self) -> Program:
        """The forward pass, compiled."""
        return self.programs.main

    @property
    def closed(self) -> bool:
        return self._closed

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Built on first use: a file without a vocabulary still has logits.

        Raises RequestError or ModelFileError if it was given and has more tokens than the model.
        """
        with self.compiling:
            place, size = self._vocabulary or _beside(self.file), self.model.embeddings.shape[0]
            metadata = self.file.metadata if place is None else vocabulary_of(place, size)
            found = Tokenizer.from_metadata(with_template(metadata, self._chat_template))
            if place is not None and found.vocab_size > size:
                message = f"{os.fspath(place)} has {found.vocab_size} tokens and the model {size}"
                raise RequestError(f"{message}: it belongs to another model", "tokenizer")
            return found

    @cached_property
    def samplers(self) -> Samplers:
        with self.compiling:
            return Samplers(self.tokenizer, self.plan.vocab)

    @cached_property
    def fingerprint(self) -> str:
        """Which model it is, by the contents of its file."""
        return fingerprint(self.file)

    def copy_states(self) -> None:
        """What the pool has promised to copy; states are as they should be afterwards."""
        for unit, pairs in self.pages.take_copies().items():
            self.program.states.copy(unit, pairs)

    def read_adapter(
        self, path: str | os.PathLike[str], name: str | None = None
    ) -> tuple[str, Adapter, dict[Any, Program] | None]:
        """A LoRA, its name, and the programs compiled again if it adapts matrices that none has adapted before."""
        self.check_open()
        name, adapter = self.adapters.read(path, name)
        if adapter.pairs.keys() <= self.adapters.matrices:
            return name, adapter, None
        return name, adapter, self.programs.adapted(self.adapters.matrices | adapter.pairs.keys())

    def install_adapter(self, name: str, adapter: Adapter, programs: dict[Any, Program] | None) -> None:
        """Let requests use a LoRA that was read; between two steps."""
        if programs is not None:
            self.adapters.matrices = self.adapters.matrices | adapter.pairs.keys()
            self.programs.replace(programs)
            self.plan = self.adapters.plan(self.adapters.matrices)
        self.programs.adapt(self.adapters.add(name, adapter), adapter.pairs)

    def remove_adapter(self, name: str) -> None:
        """Forget a LoRA; between two steps."""
        self.programs.adapt(self.adapters.remove(name), {})

    def check_embedded(self, embedded: Mapping[int, Embedded]) -> None:
        """Raise RequestError for rows that the model cannot take, CapacityError for more than a step holds."""
        most = (self.budget.beside or self.budget.tokens) - (0 if self.budget.whole else self.budget.sequences - 1)
        for part in embedded.values():
            if part.rows.shape[1] != (width := self.model.row_width):
                message = f"rows have {part.rows.shape[1]} numbers each: the model's embeddings have {width}"
                raise RequestError(message, "prompt")
            if part.whole and len(part) > most:
                message = f"{len(part)} rows must be computed in one step, which has room for {most}"
                raise CapacityError(f"{message}: load the model with more step_tokens")

    def check_open(self) -> None:
        if self._closed:
            raise RequestError("the engine is closed: load the model again")

    def close(self) -> None:
        """End the backend's threads."""
        if "samplers" in self.__dict__:
            self.samplers.close()
        self.programs.close()
        self.pictures.close()
        self.sounds.close()
        self._closed = True


def _beside(file: GGUF) -> Path | None:
    """The tokenizer.json that lies beside a file without a vocabulary."""
    path = Path(file.source).parent / "tokenizer.json"
    silent = file.metadata.get("tokenizer.ggml.model") in (None, "none", "no_vocab")
    return path if silent and path.is_file() else None
