"""Profiles of models, checked before anything is loaded."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llamina.backends import BACKENDS
from llamina.engine.request import check_names as check_option_names
from llamina.errors import LlaminaError
from llamina.hub.origin import is_url
from llamina.models import RopeOverrides
from llamina.models.rope_overrides import NAMES as ROPE_NAMES
from llamina.quantization.types import file_type
from llamina.sampling import Sampling
from llamina.server.config import ModelProfile
from llamina.server.settings.mistakes import Mistake, unknown
from llamina.tokenizer import ChatTemplate, template_source
from llamina.tokenizer.named_templates import TEMPLATES


@dataclass(frozen=True)
class Profile:
    """What is given for a model, and where each key of it is."""

    name: str
    given: dict[str, Any]
    where: Callable[[tuple[str, ...]], str]


def finished(profile: Profile, folder: Path | None, mistakes: list[Mistake]) -> ModelProfile:
    """The profile with its files found (beside the configuration, or as they are) and its template read."""
    given = dict(profile.given)

    def wrong(key: str, message: str) -> None:
        mistakes.append(Mistake(profile.where((key,)), message))

    given["model"] = given.get("model") or profile.name
    for key in ("model", "draft", "mmproj", "tokenizer", "quantize_imatrix"):
        if given.get(key):
            given[key] = _file(given[key], folder)
            if _is_path(given[key]) and not os.path.exists(given[key]):
                wrong(key, f"{key} is {given[key]!r}: there is no such file")
    for name, file in given.get("adapters", {}).items():
        given["adapters"] = {**given["adapters"], name: _file(file, folder)}
        if not os.path.exists(given["adapters"][name]):
            wrong("adapters", f"adapters.{name} is {file!r}: there is no such file")
    if given.get("chat_template"):
        try:
            given["chat_template"] = _template(given["chat_template"], folder)
        except (LlaminaError, OSError, UnicodeDecodeError) as error:
            wrong("chat_template", f"chat_template: {getattr(error, 'strerror', None) or error}")
    try:
        check_option_names(given.get("rope", {}), ROPE_NAMES)
        RopeOverrides.take(given.get("rope", {}))
    except LlaminaError as error:
        wrong("rope", f"rope: {error}")
    check_defaults(given, wrong)
    return ModelProfile(**given)


def check_defaults(given: dict[str, Any], wrong: Callable[[str, str], None]) -> None:
    """What profiles and their defaults share: the backend, the type of copies and the sampling parameters."""
    if given.get("quantize"):
        try:
            file_type(given["quantize"])
        except LlaminaError as error:
            wrong("quantize", f"quantize: {error}")
    if (backend := given.get("backend")) is not None and backend not in BACKENDS:
        wrong("backend", f"backend is {backend!r}: {', '.join(BACKENDS)} are known")
    sampling = given.get("sampling", {})
    known = Sampling.__dataclass_fields__.keys()
    if others := [name for name in sampling if name not in known]:
        for name in others:
            wrong("sampling", "sampling: " + unknown(name, known, "parameter"))
        return
    try:
        Sampling(**sampling)
    except (LlaminaError, TypeError) as error:
        wrong("sampling", f"sampling: {error}")


def check_names(profiles: list[Profile], mistakes: list[Mistake]) -> None:
    """Names and aliases are of one model each."""
    taken = {profile.name: profile for profile in profiles}
    for profile in profiles:
        for alias in profile.given.get("aliases", []):
            if (other := taken.get(alias)) is not None and alias != profile.name:
                place = profile.where(("aliases",))
                mistakes.append(Mistake(place, f"the alias {alias!r} is a name of the model {other.name!r} already"))
            taken.setdefault(alias, profile)


def _file(name: str, folder: Path | None) -> str:
    """A file beside the configuration, else the name as it is."""
    path = Path(name).expanduser()
    if folder is not None and not path.is_absolute() and (folder / path).exists():
        return str((folder / path).resolve())
    return str(path) if path.exists() or name.startswith("~") else name


def _is_path(name: str) -> bool:
    return not is_url(name) and (name.endswith(".gguf") or name.startswith(("/", "./", "../", "~")))


def _template(text: str, folder: Path | None) -> str:
    """The source of a template by its name, the text itself if it is one, else that of the file.

    Raises TemplateError, OSError.
    """
    given = text in TEMPLATES or "{{" in text or "{%" in text
    source = template_source(text) if given else Path(_file(text, folder)).read_text(encoding="utf-8")
    ChatTemplate(source)
    return source
