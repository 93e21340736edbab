"""`llamina run`: a prompt in, an answer out."""

import shlex
import time
from typing import Any

import click

from llamina.cli.advice import advised
from llamina.cli.beams import beam_options, check_beams, print_beams
from llamina.cli.constraints import constraint_options, take_constraint
from llamina.cli.llama_cpp import always, batch_options, flash_option
from llamina.cli.loading import load_engine, loading, loading_options
from llamina.cli.options import (
    decode,
    device_options,
    json_option,
    kv_option,
    load_adapters,
    locate,
    lora_option,
    mmproj_option,
    model_options,
    open_file,
    picture,
    piped,
    recording,
)
from llamina.cli.override_options import override_options, overrides
from llamina.cli.sampling import SampledCommand, given, sampling_options
from llamina.cli.session_lock import held


def _limit(ctx: click.Context, param: click.Parameter, value: int) -> int | None:
    """-1 means until the context is full, as in llama.cpp."""
    if value == 0 or value < -1:
        raise click.BadParameter(f"{value} is not a number of tokens: give at least 1, or -1 for no limit")
    return None if value == -1 else value


def _mode(ctx: click.Context, param: click.Parameter, value: str) -> str | int:
    return int(value) if value.isdecimal() else value


@click.command("run", cls=SampledCommand)
@click.argument("prompt", nargs=-1, metavar="[PROMPT]")
@click.option("-p", "--prompt", "text", metavar="TEXT", help="The prompt, instead of the argument.")
@click.option(
    "-f",
    "--file",
    type=click.File("rb"),
    help="Read the prompt from a file, or what follows it; - is stdin.",
)
@model_options
@click.option(
    "--image", "images", multiple=True, metavar="FILE|URL", help="Show a picture with the prompt. May be repeated."
)
@click.option("--audio", "sounds", multiple=True, metavar="FILE", help="Let the model hear a sound. May be repeated.")
@mmproj_option
@click.option(
    "-sys",
    "--system",
    "--system-prompt",
    "system",
    metavar="TEXT",
    help="System message for the model's chat template.",
)
@click.option(
    "--session",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Continue the conversation in FILE, or begin one, and save it there.",
)
@lora_option
@click.option(
    "--raw",
    "-no-cnv",
    "--no-conversation",
    "raw",
    is_flag=True,
    help="Continue the text as it is, without the chat template.",
)
@click.option(
    "-n",
    "--max-tokens",
    "--predict",
    "--n-predict",
    "max_tokens",
    type=int,
    default=256,
    show_default=True,
    callback=_limit,
    metavar="N",
    help="Most tokens to generate; -1: until the context is full.",
)
@click.option(
    "--stop",
    "-r",
    "--reverse-prompt",
    multiple=True,
    metavar="TEXT",
    help="End the answer before this text. May be repeated.",
)
@click.option("--ignore-eos", is_flag=True, help="Continue after the end-of-sequence token.")
@click.option(
    "--logprobs", type=int, metavar="N", help="With --json: log-probabilities of the tokens, and of the N likeliest."
)
@constraint_options
@beam_options
@sampling_options
@click.option(
    "-c",
    "--ctx-size",
    "--n-ctx",
    "context",
    type=click.IntRange(min=2),
    metavar="N",
    help="Context size in tokens; by default what the model was trained with, at most 8192.",
)
@click.option(
    "--context-shift/--no-context-shift",
    help="When the context is full, drop the older half of its tokens and continue.",
)
@click.option(
    "--keep", type=click.IntRange(min=0), metavar="N", help="With --context-shift: never drop the first N tokens."
)
@click.option(
    "--draft",
    "-md",
    "--model-draft",
    "draft",
    metavar="FILE",
    help="Draft model for speculative decoding: a smaller model, or a folder of them.",
)
@click.option(
    "--speculate",
    default="auto",
    show_default=True,
    metavar="MODE",
    callback=_mode,
    help="Speculative decoding: auto, ngram (prompt lookup), draft, off, or a number of draft tokens. The answer is "
    "the same.",
)
@loading_options
@device_options
@kv_option
@batch_options
@override_options
@flash_option
@always("--jinja")
@always("-st", "--single-turn")
@always("--no-display-prompt")
@json_option
@click.option("--verbose", is_flag=True, help="Show durations, rates and the seed.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but the answer, warnings and errors.")
def command(
    prompt: tuple[str, ...],
    text: str | None,
    file: Any,
    model: str | None,
    hf: str | None,
    images: tuple[str, ...],
    sounds: tuple[str, ...],
    mmproj: str | None,
    system: str | None,
    session: str | None,
    adapters: dict[str, float],
    raw: bool,
    threads: int | None,
    backend: str,
    device: int | None,
    gpu_layers: int | str | None,
    tensor_parallel: int,
    exact: bool,
    context: int | None,
    kv_type: str,
    step_tokens: int | None,
    draft: str | None,
    as_json: bool,
    verbose: bool,
    quiet: bool,
    max_tokens: int | None,
    beam_width: int | None,
    length_penalty: float | None,
    **options: Any,
) -> int:
    """Answer PROMPT, using the model's chat template if it has one.

    The prompt is the argument, then the content of --file, then what is piped in, with blank lines between them.
    Stdin is read if it is a pipe, a file or a socket, and not if it is a terminal or a device: where a script's own
    stdin must not be read, add `< /dev/null`.

    \b
    Examples:
      llamina run "What is the capital of France?"
      llamina run -m model.gguf --raw "Once upon a time" --temp 0 -n 100
      llamina run "Summarize this:" --file notes.txt
      git diff | llamina run "Write a commit message for this diff."
      llamina run "Is this spam? ..." --choice yes --choice no
      llamina run "The capital of France is" --raw --beam-width 4 --json
      llamina run -hf user/repo:Q8_0 "Tell me a joke" --json
      llamina run --session talk.llamina "And why is that?"
      llamina run -m llava.gguf --image cat.jpg "What is this?"
      llamina run -m ultravox.gguf --audio speech.wav "What is said?"
      llamina run -m base.gguf --chat-template chatml "Who are you?"
      llamina run -m model-F16.gguf --quantize-on-load q4_k "Why is the sky blue?"
      llamina run -m model.gguf --lora pirate.gguf --lora brief.gguf=0.5 "Who are you?"
    """
    from llamina.cli.answer import Answer, Circumstances, begin, check_template, open_session, proceed, prompt_tokens
    from llamina.engine.request import request_of

    argument = _argument(prompt, text)
    if raw and system:
        raise click.UsageError("--system is part of the chat template, which --raw leaves out: drop one of them")
    if raw and session:
        raise click.UsageError("--session is a conversation, and --raw leaves the chat template out: drop one of them")
    media = "--image" if images else "--audio" if sounds else None
    if media and raw:
        raise click.UsageError(f"{media} is part of the chat template, which --raw leaves out: drop one of them")
    if options["logprobs"] is not None and not as_json:
        raise click.UsageError("--logprobs are printed as JSON: add --json")
    check_beams(beam_width, length_penalty, {"--session": session, str(media): media, "--draft": draft})
    options = {"max_tokens": max_tokens, "adapters": adapters, **take_constraint(options), **_window(options)}
    request_of([0], options)  # mistakes are told before any download
    changes = {**loading(), **overrides()}
    question = _prompt(argument, file)
    shown = [*map(picture, images), *map(recording, sounds)]
    path = locate(model, hf, quiet)
    weights = open_file(path)
    if "chat_template" not in changes:
        check_template(weights, system, session, media)
    start = time.perf_counter()
    with held(session, quiet):
        with advised():
            room: Any = {"backend": backend, "device": device, "threads": threads, "context": context}
            room |= {"kv_type": kv_type, "step_tokens": step_tokens, "draft": draft, "mmproj": mmproj}
            room |= {"gpu_layers": gpu_layers, "tensor_parallel": tensor_parallel, "exact": exact}
            engine = load_engine(weights, room | changes, quiet)
            options["adapters"] = load_adapters(engine, adapters)
        with engine:
            circumstances = Circumstances(path, time.perf_counter() - start, engine.context, max_tokens)
            if beam_width:
                search = {**options, "beam_width": beam_width, "length_penalty": length_penalty}
                tokens = prompt_tokens(engine, question, system, raw)
                return print_beams(engine, tokens, search, circumstances, as_json, quiet)
            talk = open_session(engine, session, system) if session else None
            if talk:
                asked: Any = proceed(talk, question, options, shown)
            else:
                asked = begin(engine, question, system, raw, options, shown)
            answer = Answer(asked, circumstances)
            code = answer.print_json(quiet) if as_json else answer.print_text(verbose, quiet)
            if talk and session:
                talk.save(session)
            return code


def _argument(prompt: tuple[str, ...], text: str | None) -> str | None:
    """The prompt on the command line, if there is one."""
    if len(prompt) > 1:
        first, *rest = prompt
        shown = shlex.join(["llamina", "run", "-m", first, " ".join(rest)])
        raise click.UsageError(
            f"the prompt is one argument, and here are {len(prompt)}: put it in quotes; the model is given by -m, as "
            f"in {shown}"
        )
    if prompt and text is not None:
        raise click.UsageError("the prompt is given twice: as an argument and with -p")
    return prompt[0] if prompt else text


def _prompt(argument: str | None, file: Any) -> str:
    """The argument, the file and what is piped in, as far as there are any."""
    content = "" if file is None else decode(file.read(), getattr(file, "name", "the file"))
    parts = [argument, content, piped(expected=not (argument or content))]
    if not any(parts):
        raise click.UsageError("no prompt is given: write it after the command, or pipe it in")
    return "\n\n".join(part for part in parts if part)


def _window(options: dict[str, Any]) -> dict[str, Any]:
    """The options of sampling and of the request, with `--context-shift` and `--keep` by the request's names."""
    keep, shift = options.pop("keep"), options.pop("context_shift")
    if keep is not None and not shift:
        raise click.UsageError("--keep says what --context-shift must not drop: add --context-shift")
    dropped = {"truncate": True, "context_shift": True, "n_keep": keep or 0} if shift else {}
    return {**given(options), **dropped}
