"""Check and time backend='cuda' on this machine's GPU; writes gpu.json and gpu.md.

    python benchmarks/gpu.py --out DIR [--only ops,formats,golden,exact] [--golden DIR]
    python benchmarks/gpu.py --out DIR --only speed,engine,serving,start --model FILE
    python benchmarks/gpu.py --out DIR --only perplexity --real qwen2.5-coder-0.5b

`ops`: every operation against its NumPy meaning. `formats`: products and embeddings of every format. `golden`: every
architecture's tiny model against llama.cpp's logits, at once and in pieces. `speed`: decode and prefill of a model by
its program alone. `engine`: the same by the whole engine. `exact`: with exact=True, bits of logits are the
same in chunks of any size and beside other sequences, for every architecture and for the model; `--exact` times that.
`perplexity`: of real files, beside the CPU's. `serving`: 64 streams through `llamina serve`, beside the engine alone.
`start`: the time to the first token of `llamina run`, with an empty kernel cache and with a full one.
"""

import argparse
import importlib.util
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "backends")]

import gpu_whole  # noqa: E402
import numpy as np  # noqa: E402

EXACT, ROUNDED = 1e-8, 2e-4  # normalised mean squared errors: of float32, and where activations are rounded
Row = dict[str, Any]


def checked(name: str, limit: float, errors: Callable[[], list[float]]) -> Row:
    """The largest of some errors, and whether all are within the limit; an exception is a failure."""
    start = time.perf_counter()
    try:
        found = errors()
        worst = max(found) if all(e == e for e in found) else float("nan")
        row: Row = {"name": name, "error": worst, "ok": worst < limit}
    except Exception as error:
        row = {"name": name, "ok": False, "exception": f"{type(error).__name__}: {error}"[:500]}
        print("".join(traceback.format_exception(error)[-3:]), flush=True)
    row["seconds"] = round(time.perf_counter() - start, 2)
    shown = row.get("exception") or f"{row['error']:.1e}"
    print(f"{'ok  ' if row['ok'] else 'BAD '} {name:44s} {shown} {row['seconds']} s", flush=True)
    return row


def spread(check: Callable[[str, argparse.Namespace], Row], names: list[str], args: argparse.Namespace) -> list[Row]:
    """A check of each name, by several processes: one compiles while another computes."""
    names = [name for name in names if args.match in name]
    with ProcessPoolExecutor(args.processes, mp_context=get_context("spawn")) as pool:
        return list(pool.map(check, names, [args] * len(names)))


def ops(args: argparse.Namespace) -> list[Row]:
    from test_cpu_ops import PLANS

    return spread(check_op, list(PLANS), args)


def check_op(name: str, args: argparse.Namespace) -> Row:
    """A plan of the CPU's own test: at once, beside others, and in pieces of three tokens and of one."""
    import plans
    from test_cpu_ops import PLANS, TOKENS

    plan, first = PLANS[name], [[plans.whole(TOKENS)]]
    others = [plans.whole([1, 2, 3], 20, 1), plans.whole(TOKENS, slot=3), plans.whole([9], 30, 2)]

    def errors() -> list[float]:
        want = plans.run("reference", plan, first)
        got = [
            plans.run(args.backend, plan, first),
            plans.run(args.backend, plan, [others])[3:-1],
            plans.run(args.backend, plan, plans.pieces(TOKENS, 3, 5, 2)),
            plans.run(args.backend, plan, plans.pieces(TOKENS, 1, 5, 2)),
        ]
        return [plans.error(g, want) for g in got]

    return checked(name, EXACT, errors)


def formats(args: argparse.Namespace) -> list[Row]:
    from llamina.backends.cuda.kernels.formats import FORMS, PLAIN

    return spread(check_format, [*PLAIN, *FORMS], args)


def check_format(kind: str, args: argparse.Namespace) -> Row:
    """An embedding, a product and products of experts of a format, for 1, 3 and 37 tokens."""
    import plans

    from llamina.ops import Routing, concat, embed, expert_linear, flat, linear, mix, norm, pick, route

    rng = np.random.default_rng(3)

    def weight(kind: str, name: str, *shape: int) -> Any:
        if kind in ("F32", "F16", "BF16"):
            return plans.float_weight(name, 0.3 * rng.standard_normal(shape), kind)
        return plans.block_weight(name, kind, shape, len(name))

    table, matrix = weight(kind, "token_embd.weight", 32, 512), weight(kind, "matrix", 300, 512)
    experts, router = weight(kind, "experts", 4, 72, 512), weight("F32", "router", 4, 512)

    def plan(tokens: Any, positions: Any) -> Any:
        x = norm(embed(tokens, table), None, 1e-6)
        chosen, weights = route(linear(x, router), Routing(2))
        answers = expert_linear(x, experts, chosen)
        return pick(concat(concat(linear(x, matrix), mix(answers, weights)), flat(answers)))

    def errors() -> list[float]:
        found = []
        for count in (1, 3, 37):
            spans = [[plans.whole([int(t) for t in rng.integers(0, 32, count)])]]
            found.append(plans.error(plans.run(args.backend, plan, spans), plans.run("reference", plan, spans)))
        return found

    return checked(kind, EXACT if kind == "F32" else ROUNDED, errors)


def golden(args: argparse.Namespace) -> list[Row]:
    return spread(check_model, list(json.loads((args.golden / "archs.json").read_text())), args)


def written(name: str, args: argparse.Namespace) -> Path:
    """A tiny model's file."""
    script = importlib.util.spec_from_file_location("arch_models", args.golden / "arch_models.py")
    assert script and script.loader
    module = importlib.util.module_from_spec(script)
    script.loader.exec_module(module)
    path: Path = args.out / f"{name}.gguf"
    module.write(json.loads((args.golden / "archs.json").read_text())[name], path)
    return path


def check_model(name: str, args: argparse.Namespace) -> Row:
    """One tiny model: 40 tokens at once, and seven at a time."""
    import llamina

    path = written(name, args)
    truth = np.load(args.golden / "arch_logits.npz")
    tokens, want = [int(t) for t in truth[f"{name}.tokens"]], truth[name]

    def errors() -> Iterator[float]:
        for size in (64, 7):
            with llamina.load(path, backend=args.backend, kv_type="f32", step_tokens=size, context=64) as engine:
                if size >= len(tokens) or engine.runner.model.causal:
                    got = engine.logits(tokens)
                    yield float(np.sum((got - want) ** 2, dtype=np.float64) / np.sum(want**2, dtype=np.float64))

    row = checked(name, 1e-5, lambda: list(errors()))
    path.unlink()
    return row


def exact(args: argparse.Namespace) -> list[Row]:
    rows = spread(check_exact, list(json.loads((args.golden / "archs.json").read_text())), args)
    return [*rows, check_exact_model(args)] if args.model else rows


def check_exact(name: str, args: argparse.Namespace) -> Row:
    """How many logits of a tiny model differ in chunks of 64, 7, 3 and 1 tokens, and beside others."""
    import llamina

    path = written(name, args)
    tokens = [int(t) for t in np.load(args.golden / "arch_logits.npz")[f"{name}.tokens"]]

    def errors() -> Iterator[float]:
        for kv_type in ("f16", "f32"):
            yield from of_cache(kv_type)

    def of_cache(kv_type: Any) -> Iterator[float]:
        want, how = None, dict[str, Any](backend=args.backend, kv_type=kv_type, context=64)
        for size in (64, 7, 3, 1):
            with llamina.load(path, exact=True, step_tokens=size, **how) as engine:
                if not engine.runner.model.causal:
                    return
                got = engine.logits(tokens)
                want = got.copy() if want is None else want
                yield float(np.sum(got != want))
                if size != 1:
                    with ThreadPoolExecutor() as pool:
                        beside = list(pool.map(engine.logits, ([1, 2], tokens[3:9], tokens, tokens[:20], [3])))[2]
                    yield float(np.sum(beside != want))

    row = checked(f"exact: {name}", 1, lambda: [0.0, *errors()])
    path.unlink()
    return row


def _likeliest(engine: Any, prompts: list[list[int]], tokens: int = 4) -> list[list[tuple[int, float]]]:
    """The tokens that greedy decoding of some prompts at once finds, with their log-probabilities."""
    how = {"temperature": 0, "max_tokens": tokens, "ignore_eos": True, "logprobs": 1, "speculate": "off"}
    streams = [engine.stream(prompt, **how, cache_prompt=False) for prompt in prompts]
    found = [stream.result() for stream in streams]
    return [[(x.token, x.logprob) for x in result.logprobs] for result in found]


def check_exact_model(args: argparse.Namespace) -> Row:
    """The same of the model that is timed, after 1,500 tokens, in chunks of 512, 100, 37, alone and beside others."""
    import llamina

    prompt = [(7 * i + 3) % 100000 for i in range(1500)]
    others = [[(11 * i + n) % 100000 for i in range(40 * n)] for n in range(1, 12)]

    def errors() -> Iterator[float]:
        want = None
        for size in (512, 100, 37):
            how = {"context": 2048, "max_sequences": 16, "step_tokens": size}
            with llamina.load(args.model, backend=args.backend, exact=True, **how) as engine:  # type: ignore[arg-type]
                for beside in ([], others):
                    found = _likeliest(engine, [prompt, *beside])[0]
                    want = found if want is None else want
                    yield float(found != want)

    return checked("exact: the model", 1, lambda: list(errors()))


def speed(args: argparse.Namespace) -> list[Row]:
    """Steps of the engine's own programs: one sequence and several at some depths, and prompts."""
    import llamina
    from llamina.backends import Choice
    from llamina.ops.batch import PAGE, Span

    begun = time.perf_counter()
    rows: list[Row] = []
    room = {"max_sequences": 128, "context": 9216, "cache_tokens": 65536}
    with llamina.load(args.model, backend=args.backend, exact=args.exact, kv_type=args.kv_type, **room) as engine:  # type: ignore[arg-type]
        print(f"loaded in {time.perf_counter() - begun:.1f} s", flush=True)
        rows.append({"name": "load", "seconds": round(time.perf_counter() - begun, 2), "ok": True})
        program, batch = engine.runner.program, engine.runner.batch

        def measured(name: str, spans: list[Span], repeats: int) -> None:
            tokens = sum(len(span.tokens) for span in spans)
            choices = [Choice()] * len(spans)
            for _ in range(2):
                program.launch(batch.fill(spans)).sample(choices).tokens()
            start = time.perf_counter()
            for _ in range(repeats):
                program.launch(batch.fill(spans)).sample(choices).tokens()
            seconds = (time.perf_counter() - start) / repeats
            row = {"name": name, "us": round(seconds * 1e6, 1), "rate": round(tokens / seconds, 1), "ok": True}
            rows.append(row)
            print(row, flush=True)

        def decode(count: int, depth: int) -> list[Span]:
            pages = -(-(depth + 1) // PAGE)
            return [Span([7], depth, range(i * pages, (i + 1) * pages), i, [0]) for i in range(count)]

        for count, depth in ((1, 512), (1, 8192), (8, 256), (32, 256), (64, 256), (128, 256)):
            measured(f"decode {count} at {depth}", decode(count, depth), 20)
        if args.profile:
            for count, depth in ((1, 512), (1, 8192), (8, 256), (32, 256), (64, 256)):
                rows += profile(program, batch.fill(decode(count, depth)))
            for start in (0, 7680):
                pages = range(-(-(start + 512) // PAGE))
                rows += profile(program, batch.fill([Span([5] * 512, start, pages, 0, [511])]))
        for start in (0, 1536, 7680):
            span = Span([5] * 512, start, range(-(-(start + 512) // PAGE)), 0, [511])
            measured(f"prefill 512 at {start}", [span], 5)
    return rows


def engine(args: argparse.Namespace) -> list[Row]:
    """The whole engine, scheduler and sampling included: steps of sequences that generate, and prompts."""
    import llamina

    rows: list[Row] = []
    prompt = [(7 * i + 3) % 100000 for i in range(8192)]
    options = {"temperature": 0, "ignore_eos": True, "cache_prompt": False, "speculate": "off"}
    room = {"max_sequences": 128, "context": 9216, "cache_tokens": 81920}
    with llamina.load(args.model, backend=args.backend, exact=args.exact, kv_type=args.kv_type, **room) as found:

        def decode(name: str, count: int, depth: int, steps: int, **more: Any) -> None:
            prompts = [[(token + i) % 100000 for token in prompt[:depth]] for i in range(count)]
            streams = [found.stream(p, max_tokens=steps + 60, **(options | more)) for p in prompts]
            while any(len(stream.sequence.generated) < 3 for stream in streams):
                found.step()
            made, start = 0, time.perf_counter()
            for _ in range(steps):
                made += sum(len(delta.tokens) for delta in found.step())
            seconds = time.perf_counter() - start
            for stream in streams:
                found.cancel(stream.sequence)
            rows.append(
                {"name": name, "us": round(seconds / steps * 1e6, 1), "rate": round(made / seconds), "ok": True}
            )
            print(rows[-1], flush=True)

        for count, depth, steps in ((1, 512, 200), (1, 8192, 100), (8, 256, 60), (32, 256, 60), (64, 256, 60),
                                    (128, 256, 40)):  # fmt: skip
            for _ in range(2):
                decode(f"engine: {count} at {depth}", count, depth, steps)
        decode("engine: 32 at 256, sampled", 32, 256, 40, temperature=0.8)
        decode("engine: 32 at 256, sampled", 32, 256, 40, temperature=0.8)
        for length in (512, 2048, 8192):
            times = []
            for _ in range(3):
                start = time.perf_counter()
                found.generate(prompt[:length], max_tokens=1, **options)  # type: ignore[call-overload]
                times.append(time.perf_counter() - start)
            rows.append({"name": f"engine: prompt of {length}", "rate": round(length / min(times)), "ok": True})
            print(rows[-1], flush=True)
    return rows


def profile(program: Any, batch: Any) -> list[Row]:
    """The time of a step's launches by kernel: all of one kernel in a row, as often as the step has them."""
    from llamina.backends.cuda.bucket import Bucket

    device, bucket = program._device, Bucket.of(batch)
    program.launch(batch).result()
    kinds: dict[str, list[Any]] = {}
    for launch in program._launches(bucket).launches:
        constants = [str(value) for key, value in launch.kernel.constants if key in ("FORM", "KIND", "TILES", "K")]
        kinds.setdefault(" ".join([launch.kernel.name, *constants]), []).append(launch)
    rows = []
    for name, launches in kinds.items():
        graph, times = device.record(launches), []
        for _ in range(4):
            device.synchronize()
            start = time.perf_counter()
            graph.replay()
            device.synchronize()
            times.append(time.perf_counter() - start)
        rows.append(
            {
                "name": f"{bucket.tokens} tokens: {name}",
                "launches": len(launches),
                "us": round(min(times) * 1e6, 1),
                "ok": True,
            }
        )
        graph.close()
    rows.sort(key=lambda row: -row["us"])
    print(f"profile of {bucket}: {sum(row['us'] for row in rows):.0f} us", flush=True)
    for row in rows[:24]:
        print(f"  {row['us']:9.1f} us {row['launches']:4d} x {row['name']}", flush=True)
    return rows


SECTIONS = {
    "ops": ops, "formats": formats, "golden": golden, "exact": exact, "speed": speed, "engine": engine,
    "perplexity": gpu_whole.perplexity, "serving": gpu_whole.serving, "start": gpu_whole.start,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="ops,formats,golden")
    parser.add_argument("--golden", type=Path, default=ROOT / "tests" / "golden")
    parser.add_argument("--match", default="", help="part of the names of architectures")
    parser.add_argument("--model", help="a GGUF file to time")
    parser.add_argument("--real", nargs="+", default=[], help="files whose perplexity is measured")
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--profile", action="store_true", help="with speed: the time of each kernel")
    parser.add_argument("--exact", action="store_true", help="with speed and engine: bits do not depend on the step")
    parser.add_argument("--kv-type", default="f16", help="with speed and engine: the type of keys and values")
    parser.add_argument("--processes", type=int, default=6)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, list[Row]] = {}
    for name in args.only.split(","):
        start = time.perf_counter()
        results[name] = SECTIONS[name](args)
        good = sum(row["ok"] for row in results[name])
        print(f"{name}: {good} of {len(results[name])}, {time.perf_counter() - start:.0f} s", flush=True)
        (args.out / "gpu.json").write_text(json.dumps(results, indent=1))
        (args.out / "gpu.md").write_text(report(results))


def report(results: dict[str, list[Row]]) -> str:
    """Markdown: a table for each section."""
    lines: list[str] = []
    for section, rows in results.items():
        columns = list(dict.fromkeys(key for row in rows for key in row))
        lines += [f"## {section}: {sum(row['ok'] for row in rows)} of {len(rows)}", ""]
        lines += [" | ".join(columns), " | ".join("---" for _ in columns)]
        lines += [" | ".join(_shown(row.get(column, "")) for column in columns) for row in rows] + [""]
    return "\n".join(lines)


def _shown(value: Any) -> str:
    return f"{value:.1e}" if isinstance(value, float) and 0 < value < 0.01 else str(value).replace("|", "/")


if __name__ == "__main__":
    main()
