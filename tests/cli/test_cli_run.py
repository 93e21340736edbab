"""`llamina run`."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import llamina
from lora_files import draw, save
from skips import needs

Invoke = Callable[..., Result]
GREEDY = ("--temp", "0", "--repeat-penalty", "1")
STORY = ", there was a little girl named Lily."


def test_only_the_answer_is_on_stdout(invoke: Invoke, stories: Path) -> None:
    result = invoke("run", "Once upon a time", "-m", stories, "-n", "11", *GREEDY)
    assert result.exit_code == 0
    assert result.stdout == STORY + "\n"
    assert "tok/s" in result.stderr.splitlines()[-1]
    assert "\x1b" not in result.output  # no terminal, no colours


def test_layers_of_a_gpu(invoke: Invoke, stories: Path) -> None:
    """0 is the CPU on any machine; a number needs a GPU."""
    result = invoke("run", "Once upon a time", "-m", stories, "-n", "11", "-q", "-ngl", "0", *GREEDY)
    assert result.exit_code == 0 and result.stdout == STORY + "\n"
    result = invoke("run", "Once", "-m", stories, "--gpu-layers", "3", "--backend", "cpu")
    assert result.exit_code == 2 and "backend='cpu' has no GPU" in result.stderr
    result = invoke("run", "Once", "-m", stories, "-ngl", "most")
    assert result.exit_code == 2 and "'most' is not a number of layers, auto or all" in result.stderr


def test_ranks(invoke: Invoke, stories: Path) -> None:
    ranks = ("--backend", "cpu", "--tensor-parallel", "2")
    result = invoke("run", "Once upon a time", "-m", stories, "-n", "11", "-q", *ranks, *GREEDY)
    assert result.exit_code == 0 and result.stdout == STORY + "\n"


def test_the_ways_to_give_a_prompt_agree(invoke: Invoke, stories: Path, tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("Once upon a time")
    common = ("-m", stories, "-n", "5", "-q", *GREEDY)
    ways = [
        invoke("run", "Once upon a time", *common),
        invoke("run", "-p", "Once upon a time", *common),
        invoke("run", "--prompt", "Once upon a time", *common),
        invoke("run", "--file", tmp_path / "prompt.txt", *common),
        invoke("run", *common, input="Once upon a time"),
        invoke("run", "--file", "-", *common, input="Once upon a time"),
    ]
    assert {(way.exit_code, way.stdout, way.stderr) for way in ways} == {(0, ", there was a little\n", "")}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no prompt is given"),
        (["x", "-p", "y"], "given twice"),
        (["x", "-m", "a", "-hf", "b/c"], "-m and -hf"),
        (["x", "--raw", "--system", "y"], "--system"),
        (["x", "-n", "0"], "at least 1"),
        (["x", "--temp", "-1"], "temperature is -1.0"),
        (["x", "--top-p", "2"], "top_p is 2.0"),
        (["x", "-t", "0"], "threads"),
        (["x", "--backend", "abacus"], "abacus"),
        (["x", "--file", "/no/such/file"], "No such file"),
        (["x", "--samplers", "top_k;top_q"], "samplers is"),
        (["x", "--mirostat", "3"], "mirostat is 3"),
        (["x", "-l", "12"], "15043-inf"),
        (["x", "-l", "-1+2"], "15043-inf"),
        (["x", "--stop", ""], "stop is"),
        (["x", "--speculate", "wildly"], "speculate is 'wildly'"),
        (["x", "--speculate", "0"], "speculate is 0"),
        (["x", "--regex", "a", "--choice", "b"], "regex and choices are given"),
        (["x", "-j", "{"], "json_schema is not JSON"),
        (["x", "--grammar", "a", "--grammar-file", "/dev/null"], "--grammar is given twice"),
        (["x", "--regex", "a", "--ignore-eos"], "ignore_eos is given with regex"),
        (["x", "--lora", "/no/such/file=0.5"], "/no/such/file does not exist"),
        (["x", "--lora", f"{__file__}=much"], "'much' is not a scale"),
        (["x", "--lora", f"{__file__}=inf"], "has the scale inf"),
        (["x", "--lora", __file__, "--lora", f"{__file__}=2"], "given twice"),
    ],
)
def test_mistakes_are_usage_errors_before_anything_is_fetched(
    invoke: Invoke, empty_store: Path, arguments: list[str], message: str
) -> None:
    result = invoke("run", *arguments)
    assert result.exit_code == 2 and message in result.stderr
    assert not empty_store.exists()


def test_bytes_that_are_no_text(invoke: Invoke, stories: Path) -> None:
    result = invoke("run", "-m", stories, input=b"\xff\xfe")
    assert result.exit_code == 2 and "not UTF-8" in result.stderr


def test_json(invoke: Invoke, stories: Path) -> None:
    result = invoke("run", "Once upon a time", "-m", stories, "-n", "11", "--json", *GREEDY)
    answer = json.loads(result.stdout)
    assert answer["text"] == STORY and answer["finish_reason"] == "length"
    assert len(answer["tokens"]) == 11
    assert answer["usage"] == {"prompt_tokens": 5, "completion_tokens": 11, "total_tokens": 16}
    assert answer["rates"].keys() == {"prompt_tokens_per_second", "completion_tokens_per_second"}


def test_logprobs(invoke: Invoke, stories: Path) -> None:
    options = ("-m", stories, "-n", "3", "--logprobs", "2", *GREEDY)
    answer = json.loads(invoke("run", "Once upon a time", "--json", *options).stdout)
    assert [entry["token"] for entry in answer["logprobs"]] == answer["tokens"]
    assert all(entry["top"][0] == [entry["token"], entry["logprob"]] for entry in answer["logprobs"])
    assert invoke("run", "Once upon a time", *options).exit_code == 2


def test_verbose(invoke: Invoke, stories: Path) -> None:
    result = invoke("run", "Once", "-m", stories, "-n", "3", "--verbose", *GREEDY)
    for name in (
        "total duration",
        "load duration",
        "prompt eval count",
        "prompt eval rate",
        "eval count",
        "eval rate",
    ):
        assert f"{name}:" in result.stderr


def test_a_seed_repeats_itself(invoke: Invoke, stories: Path) -> None:
    def told(seed: int) -> str:
        return invoke("run", "Once", "-m", stories, "-n", "30", "-q", "--temp", "1.5", "-s", seed).stdout

    assert told(7) == told(7) != told(8)


@pytest.mark.parametrize(
    "flags",
    [
        ["--dynatemp-range", "0.5", "--dynatemp-exp", "2"],
        ["--typical", "0.3"],
        ["--top-nsigma", "0.1"],
        ["--top-a", "1"],
        ["--epsilon-cutoff", "0.5"],
        ["--eta-cutoff", "0.9"],
        ["--xtc-probability", "1", "--xtc-threshold", "0.02"],
        ["--presence-penalty", "2", "--repeat-last-n", "-1"],
        ["--frequency-penalty", "2"],
        ["--dry-multiplier", "5", "--dry-base", "2", "--dry-allowed-length", "1", "--dry-penalty-last-n", "-1"],
        ["--mirostat", "2", "--mirostat-ent", "1", "--mirostat-lr", "0.5"],
        ["-l", "13-inf", "-l", "432-5"],
        ["--samplers", "temperature"],
    ],
    ids=lambda flags: flags[0],
)
def test_every_flag_changes_the_answer(invoke: Invoke, stories: Path, flags: list[str]) -> None:
    def told(*more: str) -> str:
        result = invoke("run", "Once", "-m", stories, "-n", "60", "-q", "--temp", "1.2", "-s", "3", "-t", "1", *more)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    assert told(*flags) == told(*flags) != told()


def test_breakers_are_replaced(invoke: Invoke, stories: Path) -> None:
    def told(*breakers: str) -> str:
        flags = [part for text in breakers for part in ("--dry-sequence-breaker", text)]
        dry = ("--dry-multiplier", "9", "--dry-penalty-last-n", "-1", "--dry-allowed-length", "1")
        return invoke("run", "Once", "-m", stories, "-n", "100", "-q", "-t", "1", *GREEDY, *dry, *flags).stdout

    assert told("none") != told(" ", ".")


def test_stop(invoke: Invoke, stories: Path) -> None:
    common = ("run", "Once upon a time", "-m", stories, "-q", "-n", "11", *GREEDY)
    assert invoke(*common, "--stop", " girl", "--stop", "Lily").stdout == ", there was a little\n"


def test_ignore_eos(invoke: Invoke, smollm2: Path) -> None:
    common = ("run", "What is 1+1?", "-m", smollm2, "-n", "30", "--json", *GREEDY)
    ended, on = (json.loads(invoke(*common, *flags).stdout) for flags in ([], ["--ignore-eos"]))
    assert ended["finish_reason"] == "stop" and on["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("flags", "pattern"),
    [
        (["--grammar", 'root ::= "yes" [!.]'], "yes[!.]"),
        (["-j", '{"type": "integer", "minimum": 10, "maximum": 99}'], "[1-9][0-9]"),
        (["--regex", "[a-c]{5}"], "[a-c]{5}"),
        (["--choice", "red", "--choice", "dark red"], "red|dark red"),
    ],
)
def test_answers_that_follow_a_grammar(invoke: Invoke, stories: Path, flags: list[str], pattern: str) -> None:
    result = invoke("run", "Once", "-m", stories, "-q", "-t", "1", *flags)
    assert re.fullmatch(pattern, result.stdout.rstrip("\n")), result.stderr


@pytest.mark.parametrize(
    ("flag", "text", "pattern"),
    [
        ("--grammar-file", 'root ::= "né" "!"+ "."\n', "né!+[.]"),
        ("--json-schema-file", '{"enum": ["ä"]}', '"ä"'),
        ("--lark-file", 'start: "a" /[0-9]{3}/', "a[0-9]{3}"),
    ],
)
def test_grammars_in_files(invoke: Invoke, stories: Path, tmp_path: Path, flag: str, text: str, pattern: str) -> None:
    (tmp_path / "file").write_text(text, encoding="utf-8")
    result = invoke("run", "Once", "-m", stories, "-q", "-t", "1", flag, tmp_path / "file")
    assert re.fullmatch(pattern, result.stdout.rstrip("\n")), result.stderr


def test_a_bad_grammar(invoke: Invoke, stories: Path) -> None:
    result = invoke("run", "Once", "-m", stories, "--grammar", "root ::= [")
    assert result.exit_code == 2 and "grammar, line 1, column 10" in result.stderr


def test_help_has_a_section_for_the_finer_points(invoke: Invoke) -> None:
    text = invoke("run", "--help").stdout
    common, finer = text.split("More sampling options:")
    assert "--temp" in common and "--xtc-threshold" in finer and "--xtc-threshold" not in common


def test_the_defaults_are_those_of_python(invoke: Invoke, stories: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options that are not given are not passed, and the help shows the engine's defaults."""
    asked: list[dict[str, object]] = []

    def begin(e: object, prompt: str, system: object, raw: bool, options: dict[str, object], shown: object) -> None:
        asked.append(options)
        raise KeyboardInterrupt

    monkeypatch.setattr("llamina.cli.answer.begin", begin)
    invoke("run", "Once", "-m", stories)
    invoke("run", "Once", "-m", stories, "--temp", "0.5", "--dry-base", "2")
    fields = llamina.Sampling.__dataclass_fields__
    passed = [{name: value for name, value in options.items() if name in fields} for options in asked]
    assert passed == [{}, {"temperature": 0.5, "dry_base": 2.0}]
    text = " ".join(invoke("run", "--help").stdout.split())
    for flag, name in (("--temp", "temperature"), ("--min-p", "min_p"), ("--mirostat-lr", "mirostat_eta")):
        shown = re.search(rf"{flag}\b[^[]*\[default: ([^]]*)\]", text)
        assert shown and float(shown[1]) == fields[name].default
    assert re.search(r"--seed[^[]*\[default: random\]", text)


def test_backends_agree(invoke: Invoke, stories: Path) -> None:
    common = ("run", "Once upon a time", "-m", stories, "-n", "10", "-q", *GREEDY)
    assert invoke(*common, "--backend", "reference").stdout == invoke(*common, "-t", "2").stdout


def test_a_prompt_beyond_the_context(invoke: Invoke, stories: Path) -> None:
    result = invoke("run", "Once upon a time", "-m", stories, "-c", "4")
    assert result.exit_code == 2 and "the context holds 4" in result.stderr


def test_a_system_message_needs_a_template(invoke: Invoke, stories: Path) -> None:
    result = invoke("run", "Once", "-m", stories, "--system", "Be brief.")
    assert result.exit_code == 2 and "no chat template" in result.stderr


def test_the_environment_names_the_model(invoke: Invoke, stories: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMINA_MODEL", str(stories))
    monkeypatch.setenv("LLAMINA_THREADS", "1")
    assert invoke("run", "Once upon a time", "-n", "5", "-q", *GREEDY).stdout == ", there was a little\n"


def test_no_model_means_the_default(invoke: Invoke, empty_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from llamina import hub
    from llamina.errors import DownloadError

    def refuse(name: str, progress: object) -> Path:
        raise DownloadError(f"{name} was asked for")

    monkeypatch.setattr(hub, "obtain", refuse)
    result = invoke("run", "Hello")
    assert (result.exit_code, result.stderr) == (1, "error: qwen2.5-coder-0.5b was asked for\n")


@needs("hardware", sys.platform != "win32", "POSIX signals")
@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_interrupted_answers_end_in_order(stories: Path, flags: list[str]) -> None:
    """Ctrl-C: what there is is printed, and the exit code is 130."""
    command = [
        sys.executable,
        "-u",
        "-m",
        "llamina",
        "run",
        "Once",
        "-m",
        str(stories),
        "-n",
        "-1",
        "--ignore-eos",
        "-c",
        "16384",  # more than is generated in the seconds before
    ]
    slow = [*command, "--backend", "reference", *flags]
    with subprocess.Popen(slow, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        begun = process.stdout.read(8) if not flags else _wait(6.0)
        os.kill(process.pid, signal.SIGINT)
        out, err = begun + process.stdout.read(), process.stderr.read().decode()
        assert process.wait(30) == 130
    assert "Traceback" not in err
    if flags:
        assert json.loads(out)["finish_reason"] == "cancelled"
    else:
        assert out.endswith(b"\n") and "tok/s" in err


def _wait(seconds: float) -> bytes:
    import time

    time.sleep(seconds)
    return b""


def test_the_default_model_answers(invoke: Invoke, smollm2: Path) -> None:
    options = ("--raw", "--temp", "0", "--repeat-penalty", "1", "-n", "8")
    result = invoke("run", "The capital of France is", *options, "-m", smollm2)
    assert result.exit_code == 0 and result.stdout.startswith(" Paris.")


def test_raw_text_is_continued_as_it_is(invoke: Invoke, smollm2: Path) -> None:
    result = invoke("run", "--raw", "The capital of France is", "-n", "3", "-q", "-m", smollm2, *GREEDY)
    assert result.stdout.startswith(" Paris")


def test_adapters_are_added_with_their_scales(invoke: Invoke, stories: Path, tmp_path: Path) -> None:
    names = [f"blk.{layer}.ffn_down.weight" for layer in range(5)]
    one, two = (save(tmp_path / f"{i}.gguf", "llama", draw(stories, names, 4, i, 1.0)) for i in range(2))

    def ask(*lora: str) -> str:
        options = [word for value in lora for word in ("--lora", value)]
        result = invoke("run", "Once upon a time", "-m", stories, "-n", "11", "-q", *GREEDY, *options)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    plain = STORY + "\n"
    assert ask(f"{one}=0", f"{two}=0") == plain
    assert len({plain, ask(f"{one}"), ask(f"{two}"), ask(f"{one}", f"{two}=-1.5")}) == 4
    with llamina.load(stories, threads=1) as engine:
        use = {engine.load_adapter(path): scale for path, scale in ((one, 1.0), (two, -1.5))}
        said = engine.generate("Once upon a time", max_tokens=11, temperature=0.0, adapters=use).text
    assert ask(f"{one}", f"{two}=-1.5") == said + "\n"
    refused = invoke("run", "x", "-m", stories, "--lora", stories)
    assert refused.exit_code == 1 and "no LoRA adapter" in refused.stderr


def test_guessing_ahead(invoke: Invoke, stories: Path) -> None:
    """The answer is the same; `--verbose` and `--json` tell how many guesses were right."""
    common = ("run", "Tim ran. Tim ran. Tim ran.", "-m", stories, "-n", "30", *GREEDY)
    plain = invoke(*common, "--speculate", "off", "--verbose")
    assert "speculation:          off: asked to be off" in plain.stderr
    guessed = invoke(*common, "--speculate", "4", "--draft", stories, "--verbose")
    assert guessed.stdout == plain.stdout and " draft token(s), " in guessed.stderr
    told = json.loads(invoke(*common, "--speculate", "4", "--draft", stories, "--json").stdout)["speculation"]
    assert told["drafted_tokens"] == told["accepted_tokens"] > 20 and told["acceptance_rate"] == 1
    assert invoke(*common, "--speculate", "draft").exit_code == 2


def test_beams(invoke: Invoke, stories: Path) -> None:
    with llamina.load(stories) as engine:
        best = engine.generate("Once upon", beam_width=3, n=3, max_tokens=8, length_penalty=0.5)
    common = ("run", "-m", stories, "--raw", "Once upon", "-n", "8", "--beam-width", "3")
    told = json.loads(invoke(*common, "--length-penalty", "0.5", "--json").stdout)
    found = [told, *told["alternatives"]]
    assert [answer["text"] for answer in found] == [answer.text for answer in (best, *best.alternatives)]
    assert [answer["score"] for answer in found] == [answer.score for answer in (best, *best.alternatives)]
    assert told["logprob"] == best.cumulative_logprob and told["usage"]["completion_tokens"] == 8
    plain = invoke(*common)
    assert plain.exit_code == 0 and "score -" in plain.stderr
    for flags, message in {
        ("--temp", "0"): "temperature cannot be given with beam_width",
        ("--stop", "x"): "stop cannot be given with beam_width",
        ("--session", "talk"): "--session does not go with --beam-width",
    }.items():
        refused = invoke(*(part for part in common if part != "--raw" or flags[0] != "--session"), *flags)
        assert refused.exit_code == 2 and message in refused.stderr
    assert "add --beam-width" in invoke("run", "-m", stories, "x", "--length-penalty", "2").stderr


def test_quantized_on_load(invoke: Invoke, stories: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llamina.quantization.cached.cache_dir", lambda: tmp_path)
    common = ("run", "-m", stories, "--raw", "Once upon", "-n", "5", "--temp", "0")
    first = invoke(*common, "--quantize-on-load", "q8_0", "--quantize-tensor", "attn_v=q4_0")
    assert first.exit_code == 0 and "quantizing stories260K-Q8_0-" in first.stderr
    again = invoke(*common, "--quantize-on-load", "q8_0", "--quantize-tensor", "attn_v=q4_0")
    assert again.stdout == first.stdout and "quantizing" not in again.stderr
    for flags, message in {
        ("--quantize-tensor", "attn_v=q4_0"): "--quantize-tensor says how --quantize-on-load makes a copy: give both",
        ("--allow-requantize",): "--allow-requantize says how --quantize-on-load makes a copy: give both",
        ("--quantize-on-load", "q8_0", "--quantize-tensor", "x"): "'x' is not PATTERN=TYPE",
        ("--quantize-on-load", "q9"): "type is 'q9': must be one of",
    }.items():
        refused = invoke(*common, *flags)
        assert refused.exit_code == 2 and message in refused.stderr
