"""`llamina serve`: models behind the APIs of OpenAI, Anthropic and Ollama."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
from click.core import ParameterSource
from click.types import StringParamType

from llamina.cli.llama_cpp import agreed, always, batch_option, cache_type_options, flash_option, step_tokens
from llamina.cli.options import complete_model, mmproj_option, offline_option, usable_threads
from llamina.cli.override_options import override_options, overrides
from llamina.cli.sampling import NUMBER_NAMES, SampledCommand, given, number_options
from llamina.cli.terminal import note
from llamina.server.config import Config
from llamina.server.settings.table import PREFIX, Setting, settings

SHORT = {  # other names of flags, as llama.cpp's server has them
    "port": ("-p",),
    "defaults.context": ("-c", "--ctx-size", "--n-ctx"),
    "defaults.threads": ("-t",),
    "defaults.gpu_layers": ("-ngl", "--n-gpu-layers"),
    "defaults.max_sequences": ("-np", "--parallel"),
    "defaults.step_tokens": ("-ub", "--ubatch-size"),
    "defaults.keep_alive": ("--sleep-idle-seconds",),
    "max_models": ("--models-max",),
    "slots": ("--slot-save-path",),
    "api_keys": ("--api-key",),
    "certfile": ("--ssl-cert-file",),
    "keyfile": ("--ssl-key-file",),
}
OF_A_MODEL = {  # flags that are no settings of the server, but of its first model: each has a variable, too
    "alias", "mmproj", "tokenizer", "chat_template", "chat_template_file", "rope_scale", "rope_scaling",
    "rope_freq_base", "rope_freq_scale", "yarn_ext_factor", "yarn_attn_factor", "yarn_beta_fast", "yarn_beta_slow",
    "yarn_orig_ctx",
}  # fmt: skip
NO_MODEL = re.compile(r"-(?!00001)\d{5}-of-\d{5}$|mmproj")  # a further shard of one, or an encoder beside one


class ModelName(StringParamType):
    """A model as it is given; several in a variable have commas."""

    envvar_list_splitter = ","


def setting_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """A flag for every setting of the server. Values are texts: they are read with those of the other sources."""
    for setting in reversed(list(settings())):
        function = _option(setting)(function)
    return function


def _option(setting: Setting) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    name = setting.key.replace(".", "__")
    text = setting.about + (f"  [default: {setting.default_text}]" if setting.default_text not in ("", "false") else "")
    if setting.kind is bool:
        both = f"{setting.flag}/--no-{setting.flag[2:]}"
        return click.option(both, name, default=None, help=text, is_flag=True)
    names = {str: "TEXT", int: "N", float: "N", list: "A,B", dict: "NAME=VALUE,…"}
    metavar = "|".join(setting.kind) if isinstance(setting.kind, tuple) else names[setting.kind]
    metavar = {"bytes": "SIZE", "seconds": "TIME"}.get(setting.unit, metavar)
    return click.option(setting.flag, *SHORT.get(setting.key, ()), name, metavar=metavar, help=text)


@click.command("serve", cls=SampledCommand)
@click.argument("models", nargs=-1, type=ModelName(), envvar="LLAMINA_MODELS", shell_complete=complete_model)
@click.option(
    "-m",
    "--model",
    "-hf",
    "--hf-repo",
    "--models-dir",
    "more",
    multiple=True,
    metavar="MODEL",
    shell_complete=complete_model,
    help="A GGUF file, a folder of them or the name of a model; several times. NAME=FILE gives it another name.",
)
@click.option(
    "-a", "--alias", multiple=True, metavar="NAME", help="Other names of the first model, with commas or several times."
)
@mmproj_option
@click.option(
    "--config",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Settings as TOML, with profiles of models beside it in models/NAME.toml; by default LLAMINA_CONFIG, else "
    "config.toml in the user's folder for settings.",
)
@offline_option
@click.option("--check", is_flag=True, help="Check the settings, say what is wrong with them, and end.")
@override_options
@setting_options
@number_options
@cache_type_options
@batch_option
@flash_option
@always("--jinja")
@always("-cb", "--cont-batching")
@always("-kvu", "--kv-unified")
@always("--cache-prompt")
@always("--metrics")
@always("--rerank", "--reranking")
@always("--ui", "--webui")
def command(
    models: tuple[str, ...],
    more: tuple[str, ...],
    alias: tuple[str, ...],
    mmproj: str | None,
    config: str | None,
    check: bool,
    **flags: Any,
) -> int:
    """Serve MODELS (by default those of the configuration, else the model that `run` uses) until Ctrl-C.

    A folder stands for all GGUF files in it. Each loaded model is a process of its own; others are loaded when they are
    asked for, and the least recently used makes room. Clients of OpenAI (/v1), Anthropic (/v1/messages) and Ollama
    (/api) work unchanged. Each setting is also a variable (LLAMINA_PORT for --port) and a key of the TOML file.
    Sampling options (--temp, …) are for requests that leave them out.

    \b
    Examples:
      llamina serve
      llamina serve model.gguf --alias gpt-4o --port 8000
      llamina serve -m small=smollm2 -m qwen2.5-coder-1.5b
      llamina serve ~/models --memory 8GiB --keep-alive 10m
      curl http://127.0.0.1:8080/v1/chat/completions -d '{"messages": [{"role": "user", "content": "hi"}]}'
    """
    from llamina.server.settings import InvalidConfig, load_config

    texts = {
        name.replace("__", "."): str(value) for name, value in _translated(click.get_current_context(), flags).items()
    }
    names = tuple(name for text in alias for name in text.split(",") if name)
    if more and click.get_current_context().get_parameter_source("models") == ParameterSource.ENVIRONMENT:
        models = ()  # a flag wins over a variable
    try:
        named, changes = _named((*models, *more)), _changes()
        if (mmproj or changes) and len(named) != 1:
            what = "--mmproj belongs" if mmproj else "--chat-template, --tokenizer and RoPE's flags belong"
            raise click.UsageError(f"{what} to one model: name it, or give each model a profile")
        found = load_config(config, flags=texts, models=named, aliases=names, mmproj=mmproj, changes=changes)
        if not found.models:
            found = _with_default(config, texts, names)
    except InvalidConfig as error:
        for mistake in error.mistakes:
            click.echo(click.style("error: ", fg="red", bold=True) + str(mistake), err=True)
        return 2
    if check:
        click.echo(f"the settings are fine: {len(found.models)} models, {', '.join(found.models)}")
        return 0
    if found.defaults.threads is not None:
        threads = usable_threads(found.defaults.threads)
        found = msgspec.structs.replace(found, defaults=msgspec.structs.replace(found.defaults, threads=threads))
    from llamina.server.run import serve

    return serve(found, tell=note)


for _param in command.params:
    if _param.name in OF_A_MODEL:
        _param.envvar = PREFIX + _param.name.upper()


def _translated(ctx: click.Context, flags: dict[str, Any]) -> dict[str, Any]:
    """The settings that flags give, those of llama.cpp's that are parts of one included. Raises UsageError."""
    numbers = given({name: flags.pop(name) for name in NUMBER_NAMES})
    found = given(flags)
    if kv_type := agreed(ctx, found.get("defaults__kv_type")):
        found["defaults__kv_type"] = kv_type
    step = found.get("defaults__step_tokens")
    if (step is None or step.isdecimal()) and (limited := step_tokens(ctx, int(step) if step else None)):
        found["defaults__step_tokens"] = limited
    texts = [found.get("defaults__sampling", ""), *(f"{name}={value}" for name, value in numbers.items())]
    if numbers:
        found["defaults__sampling"] = ",".join(filter(None, texts))
    return found


def _changes() -> dict[str, Any]:
    """What flags say of the model's profile. Raises UsageError or RequestError."""
    found = overrides()
    names: tuple[str, ...] = ("chat_template", "tokenizer")
    own = {name: found.pop(name) for name in names if name in found}
    return {**own, **({"rope": found} if found else {})}


def _with_default(config: str | None, flags: dict[str, str], alias: tuple[str, ...]) -> Config:
    from llamina import hub
    from llamina.server.settings import load_config

    name = os.environ.get("LLAMINA_MODEL") or hub.DEFAULT
    return load_config(config, flags=flags, models=_named((name,)), aliases=alias)


def _named(values: tuple[str, ...]) -> list[tuple[str, str]]:
    """Ids with their files or names, each once. Raises UsageError for two of the same id."""
    found = [named for value in values for named in _models(value)]
    ids = [name for name, _ in found]
    if twice := {name for name in ids if ids.count(name) > 1}:
        raise click.UsageError(f"two models are called {twice.pop()}: give one another name, as NAME=FILE")
    return found


def _models(value: str) -> Iterator[tuple[str, str]]:
    """A model's id and its file, name or address; NAME=FILE gives both, a folder as many as there are files in it."""
    from llamina.hub.origin import file_name, is_url

    name, equals, model = value.partition("=")
    path = Path(value)
    if is_url(value):
        yield Path(file_name(value)).stem, value
    elif equals and name and model and not path.exists():
        yield name, model
    elif path.is_dir():
        files = [file for file in sorted(path.glob("*.gguf")) if not NO_MODEL.search(file.stem.lower())]
        if not files:
            raise click.UsageError(f"there is no GGUF file in the folder {value}")
        yield from ((file.stem, str(file.resolve())) for file in files)
    else:
        yield (path.stem if path.suffix == ".gguf" else value), (str(path.resolve()) if path.exists() else value)
