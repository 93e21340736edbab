"""The features of a model that its plan shows."""

from collections import Counter

from llamina.ops import Step
from llamina.plan import Plan


def features(plan: Plan) -> list[str]:
    """Short phrases, those about attention first."""
    attends = [step for step in plan.steps if step.op == "attend"]
    shared = len(attends) - len({step.states for step in attends})
    layers = len({state.layer for state in plan.states}) + shared
    found = [f"sliding window of {n} tokens in {count} of {layers} layers" for n, count in _counted(attends, "window")]
    found += [
        f"chunked attention, {n} tokens, in {count} of {layers} layers" for n, count in _counted(attends, "chunk")
    ]
    if shared:
        found.append(f"keys and values of other layers in {shared} of {layers} layers")
    found += [f"attention softcap of {cap:g}" for cap, _ in _counted(attends, "softcap")]
    if _counted(attends, "alibi"):
        found.append("ALiBi")
    if _counted(attends, "distances"):
        found.append("learned biases by distance")
    elif any(step.weights for step in attends):
        found.append("attention sinks")
    if any(not step.attrs["params"].causal for step in attends):
        found.append("bidirectional attention")
    if any(step.op == "select" for step in plan.steps):
        found.append("sparse attention by an indexer")
    if latent := [state for state in plan.states if state.kind == "latent"]:
        found.append(f"latent attention (MLA), {latent[0].shape[1]} values per token and layer")
    if recurrent := {state.layer for state in plan.states if state.kind == "recurrent"}:
        found.append(f"recurrent states in {len(recurrent)} of {layers} layers")
    return found + _experts(plan) + _rotation(plan) + _ties(plan)


def _counted(attends: list[Step], setting: str) -> list[tuple[float, int]]:
    """The values of a setting other than 0, and how many layers have each."""
    values = Counter(getattr(step.attrs["params"], setting) for step in attends)
    return sorted((value, count) for value, count in values.items() if value)


def _experts(plan: Plan) -> list[str]:
    chosen = Counter((step.attrs["params"].used, step.inputs[0].size) for step in plan.steps if step.op == "route")
    return [f"{used} of {total} experts in {count} layers" for (used, total), count in chosen.items()]


def _rotation(plan: Plan) -> list[str]:
    turns = [step for step in plan.steps if step.op == "rope"]
    scales = {(step.attrs["rope"].scale, step.attrs["rope"].ext_factor != 0) for step in turns}
    found = [f"{'YaRN' if yarn else 'RoPE'} scaled by {1 / scale:g}" for scale, yarn in sorted(scales) if scale != 1]
    return found + (["RoPE frequency factors"] if any(step.weights for step in turns) else [])


def _ties(plan: Plan) -> list[str]:
    tied = any(step.op == "linear" and step.weights[0].name == "token_embd.weight" for step in plan.steps)
    return ["tied embeddings"] if tied else []
