"""What each call of torch in a forward pass is, in the words of a lecture: its step and the letters of its shape.

Letters are those of `shapes`; a generator's own sizes are H_g, A_g, K_g, F_g, and a decoder's tokens T' and S'.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from unmask.config import Disentangled, EncoderConfig
from unmask.explanation.result import Stage

FUNCTIONS = (
    "embedding", "add", "linear", "layer_norm", "rms_norm", "scaled_dot_product_attention", "gather", "mul", "conv1d", "cat",
)  # fmt: skip
NORM = "norm"

Letters = tuple[str, ...]


@dataclass(frozen=True)
class Call:
    """One function of torch that ran inside a module, and its tensors' shapes; `visit` counts that module's runs from 1."""

    path: str
    visit: int
    function: str
    given: tuple[tuple[int, ...], ...]
    out: tuple[int, ...]


@dataclass(frozen=True)
class Network:
    """A stack of layers: what its steps are called after, and which marks its letters carry."""

    name: str
    config: EncoderConfig
    layers: int
    mark: str = ""  # of its sizes
    prime: str = ""  # of its tokens


# Steps that are one call each, by the end of the module's path and the function: name and letters.
_STEPS: dict[tuple[str, str], tuple[str, Letters]] = {
    ("embeddings.norm", NORM): ("norm", ("T", "E")),
    ("embeddings.project", "linear"): ("projected to the hidden size", ("T", "H")),
    ("places.norm", NORM): ("relative places, normed", ("R", "H")),
    ("places.table", "embedding"): ("bias by distance and head", ("S", "S", "A")),
    ("attention.position_key", "linear"): ("relative places as keys", ("R", "A·K")),
    ("attention.position_query", "linear"): ("relative places as queries", ("R", "A·K")),
    ("attention.out", "linear"): ("attention output", ("T", "H")),
    ("attention_norm", NORM): ("norm", ("T", "H")),
    ("feed_forward.up", "linear"): ("feed-forward, up", ("T", "F")),
    ("feed_forward", "mul"): ("feed-forward, gated", ("T", "F")),
    ("feed_forward.down", "linear"): ("feed-forward, down", ("T", "H")),
    ("feed_forward_norm", NORM): ("norm", ("T", "H")),
    ("cross.query", "linear"): ("queries to the encoder", ("T", "A·K")),
    ("cross.key_value", "linear"): ("keys, values of the encoder", ("T°", "2·A·K")),
    ("cross.out", "linear"): ("output of attention to the encoder", ("T", "H")),
    ("cross_norm", NORM): ("norm", ("T", "H")),
    ("convolution.kernel", "conv1d"): ("convolution", ("B", "H", "S")),
    ("convolution.norm", NORM): ("with the convolution, normed", ("T", "H")),
    ("norm", NORM): ("final norm", ("T", "H")),
}
_HEAD_STEPS: dict[tuple[str, str], tuple[str, Letters]] = {
    ("positions", "embedding"): ("absolute places", ("M", "H")),
    ("transform.dense", "linear"): ("dense", ("M", "E")),
    ("transform.norm", NORM): ("norm", ("M", "E")),
    ("", "linear"): ("logits", ("M", "V")),
}
_BOUNDARY_STEPS: dict[tuple[str, str], tuple[str, Letters]] = {
    ("positions", "embedding"): ("place in the span", ("M", "Q")),
    ("", "cat"): ("both borders and the place", ("M", "2·H+Q")),
    ("transforms.0.dense", "linear"): ("dense", ("M", "H")),
    ("transforms.1.dense", "linear"): ("dense", ("M", "E")),
    ("", "linear"): ("logits", ("M", "V")),
}
_PAIR_STEPS: dict[tuple[str, str], tuple[str, Letters]] = {
    ("dense", "linear"): ("first token, dense (pooler)", ("M", "H")),
    ("out", "linear"): ("logits", ("M", "2")),
}
_REPLACED_STEPS: dict[tuple[str, str], tuple[str, Letters]] = {
    ("norm", NORM): ("with the first token, normed", ("T", "H")),
    ("dense", "linear"): ("dense", ("T", "H")),
    ("out", "linear"): ("logits", ("T", "1")),
}
_INFILL_STEPS: dict[tuple[str, str], tuple[str, Letters]] = {
    ("tokens.transform.dense", "linear"): ("dense", ("T'", "E")),
    ("tokens.transform.norm", NORM): ("norm", ("T'", "E")),
    ("tokens", "linear"): ("logits", ("T'", "V")),
}
_HEADS = {
    "mlm": ("MLM head", _HEAD_STEPS),
    "causal": ("vocabulary head", _HEAD_STEPS),
    "sbo": ("SBO head", _BOUNDARY_STEPS),
    "nsp": ("NSP head", _PAIR_STEPS),
    "sop": ("SOP head", _PAIR_STEPS),
    "rtd": ("RTD head", _REPLACED_STEPS),
    "infill": ("vocabulary head", _INFILL_STEPS),
}


def steps_in(calls: Sequence[Call], networks: dict[str, Network]) -> list[Stage]:
    """The stages of these calls in their order. `networks` are stacks of layers by the beginning of their paths.

    Of each stack the first layer stands for all, and what runs again is left out.
    """
    stages: list[Stage] = []
    grouped: list[Call] = []  # of one module's run, one after the other
    for call in [*(call for call in calls if call.visit == 1), None]:
        if grouped and (call is None or call.path != grouped[-1].path):
            stages += _steps_of(grouped, networks)
            grouped = []
        if call is not None:
            grouped.append(call)
    return stages


def _steps_of(calls: Sequence[Call], networks: dict[str, Network]) -> Iterator[Stage]:
    """Those of consecutive calls in one module."""
    path = calls[0].path
    for begin in sorted(networks, key=len, reverse=True):
        if path.startswith(begin):
            yield from _network_steps(networks[begin], path.removeprefix(begin), calls)
            return
    generator = path.startswith("objective.parts.rtd.mlm.")
    kind = "mlm" if generator else path.split(".")[2]
    owner, steps = _HEADS[kind]
    network = next(n for n in networks.values() if bool(n.mark) == generator and not n.prime)
    rest = path.partition(".head")[2].removeprefix(".")
    for call in calls:
        if (rest, _function(call)) in steps:
            name, letters = steps[rest, _function(call)]
            yield _stage(network, f"generator's {owner}" if generator else owner, name, letters, call.out)


def _network_steps(network: Network, rest: str, calls: Sequence[Call]) -> Iterator[Stage]:
    layer = rest.startswith("blocks.0.")
    if rest.startswith("blocks.") and not layer:
        return
    rest = rest.removeprefix("blocks.0.")
    part = f"{network.name}, layer 1 of {network.layers}" if layer else network.name
    match rest:
        case "embeddings":
            steps = _embedding_steps(network.config, calls)
        case "attention":
            steps = _attention_steps(network.config, calls)
        case "cross":
            steps = _cross_steps(calls)
        case _:
            steps = _plain_steps(network, rest, calls)
    for name, letters, shape in steps:
        yield _stage(network, part, name, letters, shape)


Step = tuple[str, Letters, tuple[int, ...]]


def _embedding_steps(config: EncoderConfig, calls: Sequence[Call]) -> Iterator[Step]:
    """Tables are looked up in this order; those of another network that are added come after its own."""
    names = ["token vectors"]
    names += ["position vectors"] * bool(config.position_rows) + ["segment vectors"] * (config.type_vocab_size > 1)
    found = [call for call in calls if call.function == "embedding"]
    for number, call in enumerate(found):
        again = " of the generator" if number >= len(names) else ""
        yield names[number % len(names)] + again, ("T", "E"), call.out
    sums = [call.out for call in calls if call.function == "add" and len(call.out) == 2]
    if len(found) > 1 or config.type_vocab_size:
        yield "sum", ("T", "E"), sums[-1]


def _attention_steps(config: EncoderConfig, calls: Sequence[Call]) -> Iterator[Step]:
    d = config.positions
    kinds = []
    if isinstance(d, Disentangled):
        kinds = [("keys", "content-to-position")] * d.content_to_position
        kinds += [("queries", "position-to-content")] * d.position_to_content
    linears = [call for call in calls if call.function == "linear"]
    for call in linears[:1]:
        yield "queries, keys, values of all heads", ("T", "3·A·K"), call.out
    for (role, _), call in zip(kinds, linears[1:], strict=False):
        yield f"relative places as {role}", ("R", "A·K"), call.out
    gathers = [call for call in calls if call.function == "gather"]
    kernels = [call for call in calls if call.function == "scaled_dot_product_attention"]
    for call in kernels:
        yield "queries (keys and values alike)", ("B", "A", "S", "K"), call.given[0]
        for (_, name), gathered in zip(kinds, gathers, strict=False):
            yield f"{name} scores", ("B", "A", "S", "S"), gathered.out
        yield "scores, then softmax", ("B", "A", "S", "S"), (*call.given[0][:-1], call.given[1][-2])
        yield "context of each head", ("B", "A", "S", "K"), call.out


def _cross_steps(calls: Sequence[Call]) -> Iterator[Step]:
    for call in calls:
        if call.function == "scaled_dot_product_attention":
            yield "scores, then softmax", ("B", "A", "S", "S°"), (*call.given[0][:-1], call.given[1][-2])
            yield "context of each head", ("B", "A", "S", "K"), call.out


def _plain_steps(network: Network, rest: str, calls: Sequence[Call]) -> Iterator[Step]:
    for call in calls:
        if (rest, _function(call)) in _STEPS:
            name, letters = _STEPS[rest, _function(call)]
            if rest == "norm" and network.mark:
                letters = ("M", "H")  # no one looks at the generator's states but at the blanks
            doubled = rest == "feed_forward.up" and network.config.gated
            yield name, ("T", "2·F") if doubled else letters, call.out


def _function(call: Call) -> str:
    return NORM if call.function.endswith("_norm") else call.function


def _stage(network: Network, part: str, name: str, letters: Letters, shape: tuple[int, ...]) -> Stage:
    own = tuple(_letter(network, letter) for letter in letters)
    stage = Stage(part, name, own, own, shape)
    if own[0] in ("T", "T'"):
        return replace(stage, padded=("B", own[0].replace("T", "S"), *own[1:]))
    return stage


def _letter(network: Network, text: str) -> str:
    """With the network's marks; ° is for the tokens of the encoder that a decoder looks at."""
    if text == "E" and not network.config.embedding_size:
        text = "H"
    if text in ("T", "S"):
        return text + network.prime
    return "".join(c + network.mark if c in "HAKF" else c for c in text).replace("°", "")
