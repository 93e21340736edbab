"""The operations with a state: attention, whose state is the KV cache, and recurrences."""

from dataclasses import dataclass
from math import prod

from llamina.errors import UnsupportedModel
from llamina.ops.value import State, Value, Weight
from llamina.ops.vocabulary import check, emit

MANY = 1 << 30


@dataclass(frozen=True, slots=True)
class Attention:
    """What a token attends to, and how. `window` is the length of a sliding window, `chunk` that of the stretches of
    the sequence that attend to themselves only, `alibi` the largest ALiBi bias; 0 is none of it. Without `causal` a
    token also attends to those after it, as far as the step has them, and half of the window is on either side.
    `block` is that of the `select` whose output is passed. What is `bounded` attends from `since` to `until`, which the
    batch says for each token: windows of a picture. What is `strict` never attends to what is after a token, also where
    the batch lets rows see each other. `distances` says how many positions before a token the table of biases begins
    that is passed; 0 is none."""

    scale: float
    window: int = 0
    chunk: int = 0
    softcap: float = 0.0
    alibi: float = 0.0
    causal: bool = True
    block: int = 1
    bounded: bool = False
    strict: bool = False
    distances: int = 0

    @property
    def behind(self) -> int:
        """How many positions up to its own a token attends to; 0: all."""
        return self.window if self.causal or not self.window else self.window // 2 + 1

    @property
    def ahead(self) -> int:
        """How many positions after its own a token attends to, where there are so many."""
        return 0 if self.causal else self.window // 2 or MANY

    @property
    def reach(self) -> int:
        """How many positions the KV cache must hold for a token, its own among them; 0: all."""
        return min([n for n in (self.window, self.chunk) if n], default=0) if self.causal else 0


def attend(
    q: Value,
    k: Value,
    v: Value,
    layer: int,
    params: Attention,
    sinks: Weight | None = None,
    selected: Value | None = None,
    biases: Weight | None = None,
) -> Value:
    """Write k and v to the KV cache, then attend q (heads, dim) to all that it holds, or to the blocks `selected`.

    `biases` [heads, n] are added to scores by the distance: those of `params.distances` positions before come first.
    """
    check(params.causal or not (params.chunk or selected is not None), "attend, both ways,", q, k, v)
    check(q.shape[1] == k.shape[1] and q.shape[0] % k.shape[0] == 0 and k.shape[0] == v.shape[0], "attend", q, k, v)
    check(sinks is None or prod(sinks.shape) == q.shape[0], "attend", q, *([sinks] if sinks else []))
    fits = biases is None if not params.distances else biases is not None and biases.shape[:1] == q.shape[:1]
    check(fits and (biases is None or sinks is None), "attend", q, *([biases] if biases else []))
    check(
        selected is None or selected.shape[0] in (1, k.shape[0]),
        "attend",
        q,
        k,
        *([selected] if selected is not None else []),
    )
    state = State("kv", layer, (k.shape[0], k.shape[1], v.shape[1]), f"blk.{layer}.kv", params.reach)
    inputs = (q, k, v, *([selected] if selected is not None else []))
    return emit("attend", inputs, [(q.shape[0], v.shape[1])], (sinks, biases), {"params": params}, (state,))[0]


def attend_latent(
    q: Value, k: Value, value_dim: int, layer: int, params: Attention, selected: Value | None = None
) -> Value:
    """Attention over one shared latent key whose first `value_dim` elements are the value."""
    check(k.shape[0] == 1 and q.shape[1] == k.shape[1] and value_dim <= k.shape[1], "attend_latent", q, k)
    check(selected is None or selected.shape[0] == 1, "attend_latent", q, *([selected] if selected is not None else []))
    state = State("latent", layer, (1, k.shape[1], value_dim), f"blk.{layer}.latent", params.reach)
    inputs = (q, k, *([selected] if selected is not None else []))
    return emit("attend", inputs, [(q.shape[0], value_dim)], (), {"params": params}, (state,))[0]


@dataclass(frozen=True, slots=True)
class Selection:
    """The `top` best of the blocks of `block` positions that a token may attend to, of up to `context` positions.

    A block's score is that of its best position, and the last `local` blocks are always selected. If only `whole`
    blocks compete, it is that of its last position, and an unfinished block is selected besides.
    """

    context: int
    top: int
    block: int = 1
    local: int = 0
    whole: bool = False

    @property
    def words(self) -> int:
        """How many numbers of 32 bits hold one for each block."""
        return -(-self.context // (32 * self.block))


def select(q: Value, k: Value, layer: int, params: Selection, weights: Value | None = None) -> Value:
    """Blocks of positions to attend to, a bit each: (heads or 1, words), by q (heads, dim) × the cached k (1, dim).

    With `weights` (heads,) all heads choose together, a position's score being Σ weight × relu(q × k).
    """
    check(q.shape[1] == k.shape[1] and k.shape[0] == 1, "select", q, k)
    check(weights is None or weights.shape == q.shape[:1], "select", q, *([weights] if weights is not None else []))
    if min(params.top, params.block) < 1:
        raise UnsupportedModel(
            f"{params.top} blocks of {params.block} positions cannot be selected: the file does not fit"
        )
    state = State("latent", layer, (1, k.shape[1], 0), f"blk.{layer}.index")
    inputs = (q, k, *([weights] if weights is not None else []))
    shape = (1 if weights is not None else q.shape[0], params.words)
    return emit("select", inputs, [shape], (), {"params": params}, (state,), integer=(True,))[0]


def convolve(x: Value, w: Weight, layer: int, apart: int = 1) -> Value:
    """Causal convolution of each channel with its own kernel w [channels, taps], along the sequence; plus bias.

    Taps are so many tokens `apart`.
    """
    check(len(w.shape) == 2 and x.shape == w.shape[:1] and w.shape[1] > 1, "convolve", x, w)
    check(w.bias is None or w.bias.shape == x.shape, "convolve", x, *([w.bias] if w.bias else []))
    channels, taps = w.shape
    state = State("recurrent", layer, ((taps - 1) * apart, channels), str(w))
    return emit("convolve", (x,), [x.shape], (w, w.bias), {"apart": apart}, (state,))[0]


@dataclass(frozen=True, slots=True)
class Ngrams:
    """Hashes of a token and those before it: Σ⊕ token × multiplier, modulo each table's size, plus its offset.

    `sizes` and `offsets` are those of the tables for pairs, then triples, and so on. `end` tokens cut what is before.
    """

    multipliers: tuple[int, ...]
    sizes: tuple[int, ...]
    offsets: tuple[int, ...]
    end: int


def ngrams(tokens: Value, params: Ngrams, layer: int) -> Value:
    """() → the rows of the tables (tables,) for the n-grams that end with a token."""
    past = len(params.multipliers) - 1
    if (
        past < 1
        or not params.sizes
        or len(params.sizes) % past
        or len(params.sizes) != len(params.offsets)
        or min(params.sizes) < 1
    ):
        raise UnsupportedModel(f"n-grams cannot be looked up by {params}: the file does not match its architecture")
    state = State("recurrent", layer, (past, 1), f"blk.{layer}.ngrams")
    return emit("ngrams", (tokens,), [(len(params.sizes),)], (), {"params": params}, (state,), integer=(True,))[0]


def pool(x: Value, gate: Value, w: Weight, layer: int) -> Value:
    """Each channel's mean over the last tokens, weighed by the softmax of their gates + w [tokens, channels]."""
    check(x.shape == gate.shape == w.shape[1:] and len(w.shape) == 2 and w.shape[0] > 1, "pool", x, gate, w)
    state = State("recurrent", layer, (w.shape[0] - 1, 2 * x.size), str(w))
    return emit("pool", (x, gate), [x.shape], (w,), states=(state,))[0]


def scan(x: Value, dt: Value, a: Weight, b: Value, c: Value, layer: int) -> Value:
    """The selective state-space recurrence of each channel: x and dt (channels,), b and c (n,), a [channels, n].

    h ← h·exp(dt·a) + dt·x·b;  y = h·c
    """
    check(len(x.shape) == 1 and dt.shape == x.shape and len(b.shape) == 1 and b.shape == c.shape, "scan", x, dt, b, c)
    check(a.shape == (*x.shape, *b.shape), "scan", x, b, a)
    state = State("recurrent", layer, a.shape, f"blk.{layer}.ssm")
    return emit("scan", (x, dt, b, c), [x.shape], (a,), states=(state,))[0]


def linear_attend(
    q: Value, k: Value, v: Value, decay: Value | Weight, layer: int, beta: Value | None = None, tiled: bool = False
) -> Value:
    """Linear attention: each head of v (heads, dim) has one matrix S as its state instead of keys and values.

    S ← S·decay + k⊗v;  out = q·S.  With `beta` (heads,), the delta rule: k⊗beta·(v - k·S·decay) is added instead.
    `decay` is (heads, 1) or (heads, key dim). q and k (groups, key dim) serve heads side by side, or in turn (`tiled`).
    """
    (groups, key), (heads, dim) = k.shape, v.shape
    check(q.shape == k.shape and heads % groups == 0, "linear_attend", q, k, v)
    check(decay.shape in ((heads, 1), (heads, key)), "linear_attend", v, decay)
    check(beta is None or beta.shape == (heads,), "linear_attend", v, *([beta] if beta is not None else []))
    state = State("recurrent", layer, (heads, key, dim), f"blk.{layer}.memory")
    values, weights = ((decay,), ()) if isinstance(decay, Value) else ((), (decay,))
    inputs = (q, k, v, *values, *([beta] if beta is not None else []))
    attrs = {"tiled": tiled, "delta": beta is not None}
    return emit("linear_attend", inputs, [v.shape], weights, attrs, (state,))[0]
