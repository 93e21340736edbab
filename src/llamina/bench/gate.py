"""A record against an earlier one: which rates fell."""

from dataclasses import dataclass
from typing import Any

from llamina.errors import RequestError


@dataclass(frozen=True, slots=True)
class Fall:
    """A rate that is lower than it was."""

    name: str
    unit: str
    before: float
    now: float

    @property
    def part(self) -> float:
        """How much of it is gone."""
        return 1 - self.now / self.before


def falls(record: dict[str, Any], baseline: dict[str, Any], threshold: float) -> list[Fall]:
    """llamina's rates that fell by more than `threshold` of what they were; those of one record only do not count."""
    before, now = _rates(baseline, "the baseline"), _rates(record, "this run")
    shared = [name for name in now if name in before]
    if not shared:
        raise RequestError(
            f"the baseline has no rate in common with this run: it has {', '.join(before) or 'none'}", "baseline"
        )
    found = [Fall(name, now[name][1], before[name][0], now[name][0]) for name in shared]
    return [fall for fall in found if fall.part > threshold]


def strangers(record: dict[str, Any], baseline: dict[str, Any]) -> list[str]:
    """Circumstances in which the two differ, so that their rates say little about each other."""

    def circumstances(of: dict[str, Any]) -> dict[str, Any]:
        known = {**of.get("settings", {}), "file": of.get("file", {}).get("name"), "cpu": of["machine"]["cpu"]}
        return {name: value for name, value in known.items() if name != "repeats"}

    before, now = circumstances(baseline), circumstances(record)
    return [f"{name} was {before.get(name)}, now {now[name]}" for name in now if now[name] != before.get(name)]


def _rates(record: dict[str, Any], what: str) -> dict[str, tuple[float, str]]:
    try:
        ours = [r for r in record["results"] if r["engine"] == "llamina"]
        return {r["name"]: (float(r["rate"]), r["unit"]) for r in ours if r["rate"] > 0}
    except (KeyError, TypeError) as error:
        raise RequestError(f"{what} is not a record of `llamina bench --json`: {error!r}", "baseline") from None
