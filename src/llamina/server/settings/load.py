"""One configuration of all sources: a flag wins over a variable, that over the file, and that over the default."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from llamina.places import config_dir
from llamina.server.config import Config, ModelProfile
from llamina.server.settings.mistakes import InvalidConfig, Mistake
from llamina.server.settings.profiles import Profile, check_defaults, check_names, finished
from llamina.server.settings.read import Where, read_table
from llamina.server.settings.table import PREFIX, settings
from llamina.server.settings.toml import TomlFile

FILE = "config.toml"
COMMAND_LINE = "the command line"


def load_config(
    file: str | os.PathLike[str] | None = None,
    *,
    flags: Mapping[str, str] | None = None,
    models: Sequence[tuple[str, str]] = (),
    aliases: Sequence[str] = (),
    mmproj: str | None = None,
    changes: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Config:
    """The configuration. Without a file, LLAMINA_CONFIG's, else `config.toml` in the user's folder if it is there.

    `flags` are texts by key (`limits.messages`); `models` are names and files that come before those of the file, and
    `aliases` other names of the first, `mmproj` its encoder of pictures, `changes` what else its profile says.
    Raises InvalidConfig with all mistakes.
    """
    environ = os.environ if environ is None else environ
    mistakes: list[Mistake] = []
    found = _find(file, environ)
    given: dict[str, Any] = {}
    profiles: list[Profile] = [Profile(name, {"model": model}, lambda _: COMMAND_LINE) for name, model in models]
    opened = TomlFile(found) if found is not None else None
    if found is not None and opened is not None:
        given = read_table(opened.table, Config, opened.where, mistakes)
        profiles = _merged(profiles, [*_tables(opened, given), *_files(found.parent / "models", mistakes)], mistakes)
    texts = _texts(flags or {}, environ)
    for name, (text, where) in texts.items():
        _set(given, name, text, where, mistakes)
    if profiles and aliases:
        profiles[0].given["aliases"] = [*profiles[0].given.get("aliases", []), *aliases]
    elif aliases:
        mistakes.append(Mistake("--alias", "there is no model that it could be another name of: give one"))
    if mmproj:
        profiles[0].given["mmproj"] = mmproj
    if changes:
        profiles[0].given.update(changes)
    folder = found.parent if found is not None else None

    def wrong(key: str, message: str) -> None:
        path = ("defaults", key)
        told = texts.get(".".join(path), ("", opened.where(path) if opened is not None else COMMAND_LINE))
        mistakes.append(Mistake(told[1], message))

    check_defaults(given.get("defaults", {}), wrong)
    given["models"] = {profile.name: finished(profile, folder, mistakes) for profile in profiles}
    check_names(profiles, mistakes)
    if mistakes:
        raise InvalidConfig(mistakes)
    try:
        return msgspec.convert(given, Config)
    except (msgspec.ValidationError, ValueError) as error:  # what fields have to be together
        raise InvalidConfig([Mistake(str(found or COMMAND_LINE), str(error))]) from error


def _find(file: str | os.PathLike[str] | None, environ: Mapping[str, str]) -> Path | None:
    if given := file or environ.get(PREFIX + "CONFIG"):
        return Path(given).expanduser()
    folder = config_dir()
    return folder / FILE if folder is not None and (folder / FILE).is_file() else None


def _texts(flags: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """What flags and variables give, by key, with the flag or variable. A variable that is empty gives nothing."""
    found: dict[str, tuple[str, str]] = {}
    for setting in settings():
        if setting.key in flags:
            found[setting.key] = flags[setting.key], setting.flag
        elif text := environ.get(setting.variable):
            found[setting.key] = text, setting.variable
    return found


def _set(given: dict[str, Any], key: str, text: str, where: str, mistakes: list[Mistake]) -> None:
    setting = next(setting for setting in settings() if setting.key == key)
    try:
        value = setting.read_text(text)
    except ValueError as error:
        mistakes.append(Mistake(where, f"{text!r}: {error}"))
        return
    table = given
    for name in setting.path[:-1]:
        table = table.setdefault(name, {})
    table[setting.path[-1]] = value


def _tables(file: TomlFile, given: dict[str, Any]) -> Iterator[Profile]:
    """The profiles in the file itself: `[models.NAME]`."""

    def place(name: str) -> Where:
        return lambda key: file.where(("models", name, *key))

    for name, values in given.pop("models", {}).items():
        yield Profile(name, values, place(name))


def _files(folder: Path, mistakes: list[Mistake]) -> Iterator[Profile]:
    """Those beside it: `models/NAME.toml`."""
    for path in sorted(folder.glob("*.toml")):
        try:
            file = TomlFile(path)
        except InvalidConfig as error:
            mistakes += error.mistakes
        else:
            yield Profile(path.stem, read_table(file.table, ModelProfile, file.where, mistakes), file.where)


def _merged(first: list[Profile], others: list[Profile], mistakes: list[Mistake]) -> list[Profile]:
    """All profiles by name. The command line may name the file of a profile; two of a name are a mistake otherwise."""
    found = {profile.name: profile for profile in first}
    for profile in others:
        known = found.get(profile.name)
        if known is None:
            found[profile.name] = profile
        elif known in first:
            found[profile.name] = Profile(profile.name, {**profile.given, **known.given}, profile.where)
        else:
            mistakes.append(
                Mistake(profile.where(()), f"there is a model {profile.name!r} at {known.where(())} already")
            )
    return list(found.values())
