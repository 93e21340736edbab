"""What an engine has counted and is doing now, as plain values: for dashboards, of a server or in a terminal."""

import time
from typing import Any

from llamina.engine.engine import Engine


def stats(engine: Engine) -> dict[str, Any]:
    """Gauges, memory and counters, for dashboards."""
    memory, metrics = engine.memory(), engine.metrics
    return {
        "gauges": metrics.gauges(),
        "memory": {name: getattr(memory, name) for name in memory.__slots__},
        "steps": metrics.steps,
        "prompt_tokens": metrics.prompt_tokens,
        "cached_tokens": metrics.cached_tokens,
        "generated_tokens": metrics.generated_tokens,
        "preemptions": metrics.preemptions,
        "drafted_tokens": metrics.drafted_tokens,
        "accepted_tokens": metrics.accepted_tokens,
        "requests": dict(metrics.requests),
        "histograms": metrics.distributions(),
    }


def sequences(engine: Engine) -> list[dict[str, Any]]:
    """The running and waiting sequences; `seconds` since each was asked for."""

    def look() -> list[dict[str, Any]]:
        now = time.perf_counter()
        return [
            {
                "id": sequence.id,
                "state": state,
                "seconds": now - sequence.times.submitted,
                "prompt_tokens": len(sequence.request.prompt),
                "computed": sequence.computed,
                "generated": len(sequence.generated),
                "max_tokens": sequence.request.max_tokens,
                "cached_tokens": sequence.cached or 0,
            }
            for state, queue in (("running", engine.core.running), ("waiting", engine.core.waiting))
            for sequence in queue
        ]

    return engine.stepper.call(look)
