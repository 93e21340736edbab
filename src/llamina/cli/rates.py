"""Records of measurements as tables, and the notes below them."""

from typing import Any

from llamina.cli.table import Table
from llamina.cli.terminal import bytes_text

Record = dict[str, Any]
BUSY = 0.3  # load average per core from which other programs slow what is measured


def model_table(record: Record) -> Table:
    """A row for each test; with a peer, its rate and the ratio of llamina's to it."""
    theirs = {r["name"]: r for r in record["results"] if r["engine"] != "llamina"}
    ours = [r for r in record["results"] if r["engine"] == "llamina"]
    beside = ["llama.cpp", "ratio"] if theirs else []
    headers = ["test", "tokens/s", "±", *beside, "first token", "GB/s", "of bandwidth", "GMAC/s"]
    table = Table(headers)
    for result in ours:
        peer = theirs.get(result["name"])
        compared = [f"{peer['rate']:.1f}", f"{result['ratio']:.2f}"] if peer else []
        table.rows.append(
            [result["name"], f"{result['rate']:.1f}", f"{result['spread']:.0%}", *compared, *_tail(result)]
        )
    return table


def serving_table(record: Record) -> Table:
    """A row for each scenario: its rate or time, what it is compared with, and their ratio."""
    table = Table(["test", "result", "compared with", "ratio"])
    results = record["results"]
    alone = {r["engine"]: r for r in results if r.get("batch") == 1}
    for result in results:
        if (batch := result.get("batch", 1)) > 1:
            beside = f"{_rate(alone[result['engine']])} one after the other"
            who = "" if result["engine"] == "llamina" else f", {result['engine']}"
            table.rows.append([f"{batch} requests{who}", _rate(result), beside, f"{result['speedup']:.2f}"])
        elif "microseconds" in result:
            slowest = f"{result['slowest']:.0f} µs for the slowest"
            table.rows.append([result["name"], f"{result['microseconds']:.0f} µs", slowest, ""])
        elif "first_token_seconds" in result:
            first, second = (_seconds(result[name]) for name in ("plain_first_token_seconds", "first_token_seconds"))
            part = result["first_token_seconds"] / result["plain_first_token_seconds"]
            table.rows.append([f"{result['name']}, first token", second, f"{first} {result['beside']}", f"{part:.3f}"])
        elif "plain_rate" in result:
            beside = f"{result['plain_rate']:.1f} tokens/s {result['beside']}"
            table.rows.append([result["name"], _rate(result), beside, f"{result['ratio']:.2f}"])
    return table


def url_table(record: Record) -> Table:
    """A row for each load on a server: what it did, and the median, 95th and 99th percentile of times in ms."""
    times = {"first token": "first_token", "between tokens": "inter_token", "whole": "whole"}
    table = Table(["load", "requests", "errors", "tokens/s", "requests/s", *(f"{name}, ms" for name in times)])
    for result in record["results"]:
        counts = [f"{result['requests']}", f"{result['errors']}"]
        rates = [f"{result['rate']:.1f}", f"{result['requests_per_second']:.2f}"]
        table.rows.append(
            [result["name"], *counts, *rates, *(percentiles_text(result[name]) for name in times.values())]
        )
    return table


def percentiles_text(seconds: dict[str, float]) -> str:
    """P50 / P95 / P99 in milliseconds; nothing of none."""
    return " / ".join(f"{1e3 * seconds[name]:.3g}" for name in ("p50", "p95", "p99")) if seconds else ""


def url_notes(record: Record) -> list[str]:
    """The conditions of the measurement, a line each, and errors."""
    settings, results = record["settings"], record["results"]
    prompts = f"{settings['dataset']} prompts of a file" if settings["dataset"] else "random words"
    sizes = " and ".join(f"{results[0][name]:.0f} {name.replace('_', ' ')}" for name in TOKENS)
    lines = [
        machine_line(record),
        f"{settings['url']}, {settings['model']}, {settings['api']}: {prompts}, {sizes} on average, greedy; "
        "times are P50 / P95 / P99",
    ]
    return lines + [f"{r['name']}: {r['errors']} errors: {'; '.join(r['messages'])}" for r in results if r["errors"]]


TOKENS = ("prompt_tokens", "completion_tokens")


def _rate(result: Record) -> str:
    return f"{result['rate']:.1f} tokens/s"


def _tail(result: Record) -> list[str]:
    """The columns that relate a rate to what the machine can do."""
    if result["kind"] == "prompt":
        return [_seconds(result["first_token_seconds"]), "", "", f"{result['macs_per_second'] / 1e9:.1f}"]
    return ["", f"{result['bytes_per_second'] / 1e9:.2f}", f"{result['bandwidth_share']:.0%}", ""]


def model_notes(record: Record) -> list[str]:
    """The conditions of the measurement, a line each."""
    settings, file = record["settings"], record["file"]
    lines = [
        machine_line(record),
        f"{file['name']}: {bytes_text(file['bytes'])} of weights, of which each token reads "
        f"{bytes_text(record['weight_bytes_per_token'])}; {settings['threads']} threads, "
        f"KV cache in {settings['kv_type']}, medians of {settings['repeats']} runs",
        f"memory bandwidth {record['read_bandwidth'] / 1e9:.1f} GB/s; peak resident memory beyond Python's own: "
        + ", ".join(f"{name} {bytes_text(n) if n is not None else 'unknown'}" for name, n in record["memory"].items()),
    ]
    if peer := record["peer"]:
        flags = "; ".join(f"{kind}: {text}" for kind, text in peer["flags"].items())
        lines.append(
            f"llama.cpp is {peer['package']} {peer['version']}, with the flags that are fastest for it ({flags})"
        )
    return lines


def machine_line(record: Record) -> str:
    machine = record["machine"]
    load, cores = machine["load"], machine["cores"]
    busy = (
        f"; other programs were running: load average {load:.1f} at the start" if load and load > BUSY * cores else ""
    )
    return f"{machine['cpu']}, {cores} cores, Python {machine['python']}, llamina {record['llamina']}{busy}"


def kernel_table(record: Record) -> Table:
    """A row for each format, two columns for each number of threads."""
    results = record["results"]
    threads = list(dict.fromkeys(r["threads"] for r in results))
    units = {"GB/s": "1 token", "GMAC/s": f"{record['settings']['tokens']} tokens"}
    headers = [f"{unit}, {n} thread{'s' * (n > 1)}" for n in threads for unit in units]
    table = Table(["format", *headers])
    rates = {(r["format"], r["threads"], r["unit"]): r["rate"] for r in results}
    for name in dict.fromkeys(r["format"] for r in results):
        table.rows.append([name, *(f"{rates[name, n, unit]:.1f}" for n in threads for unit in units)])
    return table


def kernel_notes(record: Record) -> list[str]:
    settings = record["settings"]
    return [
        machine_line(record),
        f"GB/s: GEMV with {bytes_text(settings['bytes'])} of weights; GMAC/s: GEMM of {settings['tokens']} tokens "
        f"with a matrix of {settings['width']} columns; medians of {settings['repeats']} runs",
    ]


def isa_table(record: Record) -> Table:
    """A row for each test, a column for each instruction set, and the ratio of the last to the first."""
    isas = record["settings"]["isas"]
    table = Table(["test", *isas, "unit", *([f"{isas[-1]} / {isas[0]}"] if len(isas) > 1 else [])])
    by_test: dict[str, dict[str, Record]] = {}
    for result in record["results"]:
        by_test.setdefault(result["test"], {})[result["isa"]] = result
    for test, found in by_test.items():
        last = found[isas[-1]]
        ratio = [f"{last['ratio']:.2f}"] if len(isas) > 1 else []
        table.rows.append([test, *(f"{found[isa]['rate']:.1f}" for isa in isas), last["unit"], *ratio])
    return table


def isa_notes(record: Record) -> list[str]:
    """The conditions of the measurement, a line each."""
    settings = record["settings"]
    if "file" not in record:
        return kernel_notes(record)
    return [
        machine_line(record),
        f"{record['file']['name']}, {settings['threads']} threads, KV cache in {settings['kv_type']}, medians of "
        f"{settings['repeats']} runs in turns",
    ]


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"
