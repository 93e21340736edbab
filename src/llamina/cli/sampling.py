"""The flags that say how tokens are chosen, by the names that llama.cpp's users know."""

import re
from typing import Any

import click

from llamina.cli.options import Function

# flags, type, default, help. The name of a value is that of the field of `Sampling`, given where no flag spells it.
NUMBERS: list[tuple[tuple[str, ...], type, float | None, str]] = [
    (("--temp", "--temperature", "temperature"), float, 0.7, "0 always takes the likeliest token."),
    (("--top-k",), int, 40, "Keep the k likeliest; 0 is off."),
    (("--top-p",), float, 0.9, "Keep the likeliest up to this mass; 1 is off."),
    (("--min-p",), float, 0.05, "Drop those this much rarer than the best; 0 is off."),
    (("--repeat-penalty",), float, 1.1, "Above 1, repeat less; 1 is off."),
    (("-s", "--seed"), int, None, "The same seed gives the same answer."),
    (("--dynatemp-range",), float, 0.0, "Temperature ± this, by how sure the model is."),
    (("--dynatemp-exp", "dynatemp_exponent"), float, 1.0, "How doubt becomes heat."),
    (("--typical", "--typical-p", "typical_p"), float, 1.0, "Keep the most typical up to this mass."),
    (("--top-nsigma", "--top-n-sigma", "top_n_sigma"), float, 0.0, "Keep logits so many deviations below the best."),
    (("--top-a",), float, 0.0, "Drop those below this times the best one's probability squared."),
    (("--epsilon-cutoff",), float, 0.0, "Drop those less likely than this."),
    (("--eta-cutoff",), float, 0.0, "The same, milder where the model is unsure."),
    (("--xtc-probability",), float, 0.0, "How often to exclude top choices."),
    (("--xtc-threshold",), float, 0.1, "What counts as a top choice."),
    (("--repeat-last-n",), int, 64, "How far back penalties look; -1 is everything."),
    (("--presence-penalty",), float, 0.0, "For tokens that occurred."),
    (("--frequency-penalty",), float, 0.0, "For each time that they did."),
    (("--dry-multiplier",), float, 0.0, "Penalty for prolonging a repetition."),
    (("--dry-base",), float, 1.75, "How it grows with the length of the repetition."),
    (("--dry-allowed-length",), int, 2, "Repetitions so long are free."),
    (("--dry-penalty-last-n",), int, 64, "How far back repetitions are looked for; -1 is everything."),
    (("--mirostat",), int, 0, "1 or 2: hold the surprise, in the place of all cuts."),
    (("--mirostat-ent", "mirostat_tau"), float, 5.0, "The surprise to hold."),
    (("--mirostat-lr", "mirostat_eta"), float, 0.1, "How fast to adapt."),
]
COMMON = 6  # of these are shown with the other options
SECTION = "Finer sampling"


class SampledCommand(click.Command):
    """A command whose help puts the finer points of sampling into a section of their own."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Options": [], SECTION: []}
        for param in self.get_params(ctx):
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx)) is not None:
                sections[SECTION if isinstance(param, _Finer) else "Options"].append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


class _Finer(click.Option):
    """An option of the second section."""


def sampling_options(function: Function) -> Function:
    """Every parameter of `Sampling` as a flag; those not given are not passed."""
    function = click.option(
        "--dry-sequence-breaker",
        "dry_sequence_breakers",
        multiple=True,
        cls=_Finer,
        metavar="TEXT",
        callback=_breakers,
        help="Where repetitions end, instead of newline : \" and *; several times, or 'none'.",
    )(function)
    function = click.option(
        "-l",
        "--logit-bias",
        multiple=True,
        cls=_Finer,
        metavar="TOKEN±BIAS",
        callback=_biases,
        help="Such as 15043+1, 15043-0.5 or 15043-inf; several times.",
    )(function)
    function = click.option(
        "--samplers",
        cls=_Finer,
        metavar="NAME;NAME",
        callback=lambda ctx, param, value: value and [name.strip() for name in value.split(";") if name.strip()],
        help="The stages and their order, such as top_k;temperature.",
    )(function)
    for at, (flags, kind, default, text) in reversed(list(enumerate(NUMBERS))):
        function = click.option(
            *flags,
            type=kind,
            default=default,
            show_default=default is not None,
            cls=_Finer if at >= COMMON else click.Option,
            help=text,
        )(function)
    return function


def given(options: dict[str, Any]) -> dict[str, Any]:
    """The options with something in them."""
    return {name: value for name, value in options.items() if value is not None}


def _breakers(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> list[str] | None:
    return [text for text in value if text != "none"] if value else None


def _biases(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> dict[int, float] | None:
    found = {}
    for text in value:
        match = re.fullmatch(r"(\d+)([+-](?:inf|\d+\.?\d*|\.\d+))", text)
        if match is None:
            raise click.BadParameter(f"{text!r} is no token with its bias: write it like 15043+1 or 15043-inf")
        found[int(match[1])] = float(match[2])
    return found or None
