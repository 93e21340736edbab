"""A record compared with an earlier one: which rates fell, and what else changed."""

from dataclasses import dataclass
from typing import Any

from llamina.errors import RequestError


@dataclass(frozen=True, slots=True)
class Regression:
    """A rate that is lower than in the earlier record."""

    name: str
    unit: str
    before: float
    now: float

    @property
    def part(self) -> float:
        """How much lower, as a part of the earlier rate."""
        return 1 - self.now / self.before


def regressions(record: dict[str, Any], baseline: dict[str, Any], threshold: float) -> list[Regression]:
    """llamina's rates that are in both records and fell by more than `threshold`, a part of the earlier rate.

    Of a server at a URL, whichever it is, all rates count. Raises RequestError if the records have no rate in common.
    """
    before, now = _rates(baseline, "the baseline"), _rates(record, "this run")
    shared = [name for name in now if name in before]
    if not shared:
        raise RequestError(
            f"the baseline has no rate in common with this run (it has {', '.join(before) or 'none'}): "
            "measure the same tests",
            "baseline",
        )
    found = [Regression(name, now[name][1], before[name][0], now[name][0]) for name in shared]
    return [regression for regression in found if regression.part > threshold]


def changed_conditions(record: dict[str, Any], baseline: dict[str, Any]) -> list[str]:
    """The machine, file and settings that are not as in the earlier record, which make rates hard to compare."""

    def conditions(of: dict[str, Any]) -> dict[str, Any]:
        known = {**of.get("settings", {}), "file": of.get("file", {}).get("name"), "cpu": of["machine"]["cpu"]}
        return {name: value for name, value in known.items() if name != "repeats"}

    before, now = conditions(baseline), conditions(record)
    return [f"{name} was {before.get(name)}, now {now[name]}" for name in now if now[name] != before.get(name)]


def _rates(record: dict[str, Any], what: str) -> dict[str, tuple[float, str]]:
    try:
        whole = record.get("kind") == "url"  # a server is measured alone
        ours = [r for r in record["results"] if whole or r["engine"] == "llamina"]
        return {r["name"]: (float(r["rate"]), r["unit"]) for r in ours if r["rate"] > 0}
    except (KeyError, TypeError) as error:
        raise RequestError(f"{what} is not the output of `llamina bench --json`: {error!r}", "baseline") from None
