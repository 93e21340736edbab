"""The sampling options, by the names that llama.cpp's users know."""

import re
from typing import Any

import click

from llamina.cli.options import Function

SEEDS = click.IntRange(-1, (1 << 64) - 1)

# Flags, type, help. A flag's name is that of a field of `Sampling`, or the field's name follows the flags.
NUMBERS: list[tuple[tuple[str, ...], Any, str]] = [
    (("--temp", "--temperature", "temperature"), float, "Temperature; 0 is greedy: always the likeliest token."),
    (("--top-k",), int, "Keep the K likeliest tokens; 0 is off."),
    (("--top-p",), float, "Keep the likeliest tokens that together have this probability; 1 is off."),
    (("--min-p",), float, "Drop tokens less likely than this times the likeliest; 0 is off."),
    (("--repeat-penalty",), float, "Penalty for tokens that occurred before; 1 is off."),
    (("-s", "--seed"), SEEDS, "Random seed, at least 0; the same seed gives the same answer. -1: a random one."),
    (
        ("--dynatemp-range",),
        float,
        "Dynamic temperature: up to this much above and below --temp, by entropy; 0 is off.",
    ),
    (("--dynatemp-exp", "dynatemp_exponent"), float, "Dynamic temperature: exponent of the normalized entropy."),
    (("--typical", "--typical-p", "typical_p"), float, "Locally typical sampling: probability to keep; 1 is off."),
    (
        ("--top-nsigma", "--top-n-sigma", "top_n_sigma"),
        float,
        "Keep logits within so many standard deviations of the largest; 0 is off.",
    ),
    (("--top-a",), float, "Drop tokens less likely than this times the highest probability squared; 0 is off."),
    (("--epsilon-cutoff",), float, "Drop tokens less likely than this; 0 is off."),
    (("--eta-cutoff",), float, "As --epsilon-cutoff, but lower where the entropy is high; 0 is off."),
    (("--xtc-probability",), float, "XTC (exclude top choices): how often to apply it; 0 is off."),
    (("--xtc-threshold",), float, "XTC: of the tokens at least this likely, keep the least likely only."),
    (("--repeat-last-n",), int, "How many of the last tokens penalties look at; 0 is off, -1 is all."),
    (("--presence-penalty",), float, "Subtracted from the logit of a token that occurred; 0 is off."),
    (("--frequency-penalty",), float, "Subtracted from the logit for each occurrence of a token; 0 is off."),
    (("--dry-multiplier",), float, "DRY: weight of the penalty for extending a repetition; 0 is off."),
    (("--dry-base",), float, "DRY: base of the penalty, raised to the length of the repetition."),
    (("--dry-allowed-length",), int, "DRY: longest repetition without a penalty."),
    (("--dry-penalty-last-n",), int, "DRY: how many of the last tokens to search; 0 is off, -1 is all."),
    (("--mirostat",), int, "Mirostat version, 1 or 2, instead of the stages that drop tokens; 0 is off."),
    (("--mirostat-ent", "mirostat_tau"), float, "Mirostat: target surprise (tau)."),
    (("--mirostat-lr", "mirostat_eta"), float, "Mirostat: learning rate (eta)."),
]
NUMBER_NAMES = [flags[-1].lstrip("-").replace("-", "_") for flags, _, _ in NUMBERS]
COMMON = 6  # of these are shown with the other options
SECTION = "More sampling options"


class _Sampled(click.Option):
    """An option whose default is that of the field of `Sampling`. Not given, it is None and the engine decides."""

    def get_help_extra(self, ctx: click.Context) -> Any:
        from llamina.sampling import Sampling  # imported where the help is shown: it takes a moment

        default = Sampling.__dataclass_fields__[str(self.name)].default
        return {"default": "random" if default is None else f"{default:g}"}


class _More(_Sampled):
    """The same in the second section of the help."""


class _Listed(click.Option):
    """An option of the second section that is no number."""


class SampledCommand(click.Command):
    """A command whose help has a section of its own for the less common sampling options."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Options": [], SECTION: []}
        for param in self.get_params(ctx):
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx)) is not None:
                sections[SECTION if isinstance(param, _More | _Listed) else "Options"].append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


def sampling_options(function: Function) -> Function:
    """Every parameter of `Sampling` as an option."""
    function = click.option(
        "--dry-sequence-breaker",
        "dry_sequence_breakers",
        multiple=True,
        cls=_Listed,
        metavar="TEXT",
        callback=_breakers,
        help="DRY: text that ends a repetition, instead of newline : \" and *. May be repeated; 'none': no text does.",
    )(function)
    function = click.option(
        "-l",
        "--logit-bias",
        multiple=True,
        cls=_Listed,
        metavar="TOKEN±BIAS",
        callback=_biases,
        help="Add to a token's logit: 15043+1, 15043-0.5, or 15043-inf to ban it. May be repeated.",
    )(function)
    function = click.option(
        "--samplers",
        cls=_Listed,
        metavar="NAME;NAME",
        callback=lambda ctx, param, value: value and [name.strip() for name in value.split(";") if name.strip()],
        help="The stages to apply, in this order, such as top_k;temperature.",
    )(function)
    return number_options(function)


def number_options(function: Function) -> Function:
    """Those that are numbers."""
    for at, (flags, kind, text) in reversed(list(enumerate(NUMBERS))):
        seed = {"callback": _seed} if "--seed" in flags else {}
        cls = _More if at >= COMMON else _Sampled
        function = click.option(*flags, type=kind, metavar="N", cls=cls, help=text, **seed)(function)
    return function


def given(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were given; for the others the engine has defaults."""
    return {name: value for name, value in options.items() if value is not None}


def _seed(ctx: click.Context, param: click.Parameter, value: int | None) -> int | None:
    """-1 asks for a random seed, as in llama.cpp."""
    return None if value == -1 else value


def _breakers(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> list[str] | None:
    return [text for text in value if text != "none"] if value else None


def _biases(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> dict[int, float] | None:
    found = {}
    for text in value:
        match = re.fullmatch(r"(\d+)([+-](?:inf|\d+\.?\d*|\.\d+))", text)
        if match is None:
            raise click.BadParameter(f"{text!r} is not a token id with a bias: write it like 15043+1 or 15043-inf")
        found[int(match[1])] = float(match[2])
    return found or None
