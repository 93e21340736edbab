"""`--chat-template`, `--tokenizer` and RoPE's flags: what takes the place of a file's own. Names are llama.cpp's."""

from pathlib import Path
from typing import Any

import click

from llamina.cli.options import Function

PLACE = "llamina.overrides"  # in the context of a command
SCALINGS = ("none", "linear", "yarn")
NUMBERS = {  # flag: option of `load`, help
    "--rope-freq-base": ("rope_freq_base", "Base of RoPE's frequencies, in place of the file's."),
    "--rope-freq-scale": ("rope_freq_scale", "Scale of RoPE's frequencies: the context grows by a factor of 1/N."),
    "--yarn-ext-factor": ("yarn_ext_factor", "YaRN: how much of the fast pairs stays as trained; 0: none."),
    "--yarn-attn-factor": ("yarn_attn_factor", "YaRN with --yarn-ext-factor 0: factor of rotated elements."),
    "--yarn-beta-fast": ("yarn_beta_fast", "YaRN: pairs that turn more often than this stay as trained."),
    "--yarn-beta-slow": ("yarn_beta_slow", "YaRN: pairs that turn less often than this are scaled."),
}


def override_options(function: Function) -> Function:
    """The flags; `overrides` tells what they ask for."""
    for flag, (name, about) in reversed(NUMBERS.items()):
        function = _option(flag, name, metavar="N", type=float, help=about)(function)
    for option in (
        _option("--yarn-orig-ctx", "yarn_orig_ctx", metavar="N", type=int, help="YaRN: the trained context in tokens."),
        _option(
            "--rope-scale", "rope_scale", metavar="N", type=float, help="Make the context N times as long by RoPE."
        ),
        _option(
            "--rope-scaling", "rope_scaling", type=click.Choice(SCALINGS), help="How RoPE's frequencies are scaled."
        ),
        _option(
            "--tokenizer",
            "tokenizer",
            type=click.Path(exists=True),
            metavar="FILE",
            help="A tokenizer.json, GGUF file or folder whose vocabulary takes the place of the model's own.",
        ),
        _option(
            "--chat-template-file",
            "chat_template_file",
            type=click.Path(exists=True, dir_okay=False),
            metavar="FILE",
            help="A file with a chat template in place of the model's own.",
        ),
        _option(
            "--chat-template",
            "chat_template",
            metavar="NAME|JINJA",
            help="A chat template in place of the model's own: its name, such as chatml or llama3, or Jinja.",
        ),
    ):
        function = option(function)
    return function


def _option(flag: str, name: str, **settings: Any) -> Any:
    return click.option(flag, name, expose_value=False, callback=_remember, **settings)


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value is not None:
        ctx.meta.setdefault(PLACE, {})[param.name] = value


def overrides() -> dict[str, Any]:
    """The options of `load` that the flags of this command ask for. Raises UsageError or RequestError if they make no
    sense: before anything is fetched."""
    from llamina.models.rope_overrides import RopeOverrides
    from llamina.tokenizer import ChatTemplate, template_source

    found = dict(click.get_current_context().meta.get(PLACE, {}))
    if (factor := found.pop("rope_scale", None)) is not None:
        if "rope_freq_scale" in found:
            raise click.UsageError("--rope-scale N is --rope-freq-scale 1/N: give one of them")
        if factor <= 0:
            raise click.UsageError(f"--rope-scale is {factor}: it must be a number above 0")
        found["rope_freq_scale"] = 1 / factor
    if (path := found.pop("chat_template_file", None)) is not None:
        if "chat_template" in found:
            raise click.UsageError("--chat-template and --chat-template-file are both given: give one of them")
        found["chat_template"] = Path(path).read_text(encoding="utf-8")
        ChatTemplate(found["chat_template"])
    elif "chat_template" in found:
        found["chat_template"] = template_source(found["chat_template"])
        ChatTemplate(found["chat_template"])
    RopeOverrides.take(found)
    return found
