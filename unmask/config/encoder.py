"""What a network is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from unmask.config.checks import positive, share

Activation = Literal["gelu", "gelu_tanh", "relu", "silu", "tanh"]


# --- how a network knows where a token stands ------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class Absolute:
    """A learned vector for each place, added to the input (BERT section 3; GPT). RoBERTa's places begin after `pad_token_id`."""

    kind: Literal["absolute"] = "absolute"
    after_padding: bool = False


@dataclass(frozen=True, kw_only=True)
class Rope:
    """Queries and keys turned by their place (Su et al. 2021, section 3.2); local layers may have a theta of their own."""

    kind: Literal["rope"] = "rope"
    theta: float = 10_000.0
    local_theta: float = 0.0  # of layers with a window; 0: the same

    def __post_init__(self) -> None:
        positive(self, "theta")
        if self.local_theta < 0:
            raise ValueError(f"local_theta must not be below 0, not {self.local_theta}")


@dataclass(frozen=True, kw_only=True)
class RelativeBias:
    """One learned number per head and bucket of distance, added to the scores (T5: Raffel et al. 2020, section 2.1)."""

    kind: Literal["relative_bias"] = "relative_bias"
    num_buckets: int = 32
    max_distance: int = 128

    def __post_init__(self) -> None:
        if self.num_buckets < 4 or self.num_buckets % 4:
            raise ValueError(f"num_buckets must be a multiple of 4, not {self.num_buckets}")
        if self.max_distance <= self.num_buckets // 2:
            raise ValueError(f"max_distance must be above half of num_buckets, not {self.max_distance}")


@dataclass(frozen=True, kw_only=True)
class Disentangled:
    """Scores between contents and relative places (DeBERTa: He et al. 2021, section 3.1).

    `position_buckets` 0 has a row for every distance below `max_relative_positions` (v1); otherwise distances beyond half of
    the buckets share rows on a logarithmic scale (v2, v3). `shared_projections` uses the contents' own matrices for places.
    """

    kind: Literal["disentangled"] = "disentangled"
    content_to_position: bool = True
    position_to_content: bool = True
    position_buckets: int = 256
    max_relative_positions: int = 512
    normed: bool = True
    shared_projections: bool = True

    def __post_init__(self) -> None:
        positive(self, "max_relative_positions")
        if not (self.content_to_position or self.position_to_content):
            raise ValueError("content_to_position and position_to_content must not both be false")
        if self.position_buckets < 0 or self.position_buckets % 2:
            raise ValueError(f"position_buckets must be even and not below 0, not {self.position_buckets}")
        if self.position_buckets and self.max_relative_positions <= self.position_buckets // 2 + 1:
            raise ValueError("max_relative_positions must be more than half of position_buckets")

    @property
    def span(self) -> int:
        """Rows on each side of distance 0."""
        return self.position_buckets or self.max_relative_positions


Positions = Absolute | Rope | RelativeBias | Disentangled


# --- how a layer lets tokens learn of each other -----------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class SelfAttention:
    """Every token looks at the others (Vaswani et al. 2017, section 3.2); how, the other settings of EncoderConfig say."""

    kind: Literal["attention"] = "attention"


@dataclass(frozen=True, kw_only=True)
class Recurrent:
    """LSTMs over words made of their characters (ELMo: Peters et al. 2018, section 3.4); the sizes are those of its release.

    A word is a run of tokens, best of single characters. Half of hidden_size is written by LSTMs that read from the left, half
    by those from the right, with `cell_size` cells each. A word comes from convolutions over its characters, each of them
    `character_size` numbers: `filters` are pairs of a width and how many there are of it (Kim et al. 2016, section 2.2), and
    `highway_layers` stand above them. Of a longer word the first `max_characters` are read.
    """

    kind: Literal["recurrent"] = "recurrent"
    cell_size: int = 4096
    character_size: int = 16
    filters: tuple[tuple[int, int], ...] = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
    highway_layers: int = 2
    max_characters: int = 50

    def __post_init__(self) -> None:
        positive(self, "cell_size", "character_size", "max_characters")
        if self.highway_layers < 0:
            raise ValueError(f"highway_layers must not be below 0, not {self.highway_layers}")
        if not self.filters or any(len(pair) != 2 or min(pair) < 1 for pair in self.filters):
            raise ValueError(f"filters must be pairs of a width and a number, both above 0, not {self.filters}")
        if max(width for width, _ in self.filters) > self.max_characters + 2:
            raise ValueError("filters must not be wider than max_characters and the two marks around a word")

    @property
    def num_filters(self) -> int:
        """Filters of all widths."""
        return sum(count for _, count in self.filters)


Layer = SelfAttention | Recurrent
# What a recurrent layer has no place for, and what stands there instead: no heads, no places, no segments, no norms.
_NOT_RECURRENT = (
    "embedding_size", "num_hidden_groups", "head_size", "gated", "type_vocab_size", "positions", "local_attention", "causal",
    "norm_first", "embedding_norm", "conv_kernel_size",
)  # fmt: skip
_WITHOUT = {"type_vocab_size": 0, "embedding_norm": False}


# --- the network -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """An encoder of any published family, told apart by these values alone; the defaults are BERT-base's (Devlin et al. 2019).

    0 stands for "as usual": `embedding_size` as wide as the encoder and not projected, `num_hidden_groups` every layer with
    weights of its own, `head_size` hidden_size / num_attention_heads, `local_attention` no window, `conv_kernel_size` no
    convolution, `type_vocab_size` no segments. The dropout here is what the model is published with and fine-tuned with; a
    pre-training run has its own, `RunConfig.dropout`.
    """

    layer: Layer = field(default_factory=SelfAttention)
    layer_mix: bool = False  # the output is a mix of all layers that tasks learn (ELMo section 3.3), not the last one
    vocab_size: int = 30522
    hidden_size: int = 768
    embedding_size: int = 0  # narrower tables, projected to hidden_size (ALBERT section 3.1, ELECTRA small)
    num_hidden_layers: int = 12
    num_hidden_groups: int = 0  # layers share this many sets of weights (ALBERT section 3.1)
    num_attention_heads: int = 12
    head_size: int = 0
    intermediate_size: int = 3072
    hidden_act: Activation = "gelu"
    gated: bool = False  # act(first half) * second half (Shazeer 2020)
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    positions: Positions = field(default_factory=Absolute)
    local_attention: int = 0  # tokens a local layer sees in all, half of them on each side
    global_attn_every_n_layers: int = 1  # layers 0, n, 2n … see everything
    causal: bool = False
    scale_attention: bool = True  # divide scores by the root of head_size; T5 does not
    norm: Literal["layer", "rms"] = "layer"
    norm_first: bool = False  # norm before attention and feed-forward, and once at the end, instead of after each
    first_norm: bool = True  # with norm_first: also before the attention of layer 0; ModernBERT goes without
    embedding_norm: bool = True
    norm_bias: bool = True
    linear_bias: bool = True
    key_bias: bool = True  # DeBERTa v1 has one on queries and values only
    conv_kernel_size: int = 0  # a convolution beside the first layer (DeBERTa v2 xlarge)
    conv_act: Activation = "gelu"
    layer_norm_eps: float = 1e-12
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    initializer: Literal["normal", "residual", "t5"] = "normal"  # see nn.initial
    initializer_range: float = 0.02
    head_transform: bool = True  # dense, activation and norm before the vocabulary
    head_bias: bool = True  # one number per token on the logits
    tie_word_embeddings: bool = True
    pad_token_id: int = 0

    def __post_init__(self) -> None:
        positive(self, "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
        positive(self, "max_position_embeddings", "global_attn_every_n_layers", "layer_norm_eps", "initializer_range")
        share(self, "hidden_dropout_prob", "attention_probs_dropout_prob")
        for name in ("embedding_size", "num_hidden_groups", "head_size", "local_attention", "conv_kernel_size"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be below 0, not {getattr(self, name)}")
        if self.type_vocab_size < 0 or self.pad_token_id < 0:
            raise ValueError("type_vocab_size and pad_token_id must not be below 0")
        if not self.head_size and self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} must be a multiple of num_attention_heads {self.num_attention_heads}"
            )
        if isinstance(self.positions, Rope) and self.key_size % 2:
            raise ValueError(
                f"positions of kind rope turn pairs of numbers: head_size must be even, not {self.key_size}"
            )
        if self.local_attention % 2:
            raise ValueError(f"local_attention must be even, half of it on each side, not {self.local_attention}")
        if self.num_hidden_groups > self.num_hidden_layers:
            raise ValueError(
                f"num_hidden_groups {self.num_hidden_groups} exceeds num_hidden_layers {self.num_hidden_layers}"
            )
        if self.conv_kernel_size and not self.conv_kernel_size % 2:
            raise ValueError(f"conv_kernel_size must be odd, not {self.conv_kernel_size}")
        if isinstance(self.layer, Recurrent):
            _check_recurrent(self, self.layer)

    @property
    def key_size(self) -> int:
        """Width of one attention head."""
        return self.head_size or self.hidden_size // self.num_attention_heads

    @property
    def inner_size(self) -> int:
        """Width of all attention heads together."""
        return self.num_attention_heads * self.key_size

    @property
    def up_size(self) -> int:
        """Width of the feed-forward's first matrix."""
        return self.intermediate_size * (2 if self.gated else 1)

    @property
    def table_size(self) -> int:
        """Width of the embedding tables."""
        return self.embedding_size or self.hidden_size

    @property
    def num_blocks(self) -> int:
        """Sets of weights the layers go through."""
        return self.num_hidden_groups or self.num_hidden_layers

    @property
    def position_rows(self) -> int:
        """Rows of the table of absolute places; 0 where there is none."""
        if not isinstance(self.positions, Absolute):
            return 0
        return self.max_position_embeddings + self.position_offset

    @property
    def position_offset(self) -> int:
        """Row of the first place."""
        after = isinstance(self.positions, Absolute) and self.positions.after_padding
        return self.pad_token_id + 1 if after else 0

    def block_of(self, layer: int) -> int:
        """Which set of weights a layer uses: consecutive layers share (ALBERT)."""
        return layer * self.num_blocks // self.num_hidden_layers

    def window_of(self, layer: int) -> int:
        """Tokens a layer sees on each side; 0: all of them."""
        return self.local_attention // 2 if layer % self.global_attn_every_n_layers else 0


def _check_recurrent(config: EncoderConfig, layer: Recurrent) -> None:
    """ValueError for settings that only attention has, and for halves that don't fit the cells."""
    for name in _NOT_RECURRENT:
        field_ = EncoderConfig.__dataclass_fields__[name]
        usual = Absolute() if name == "positions" else _WITHOUT.get(name, field_.default)
        if getattr(config, name) != usual:
            raise ValueError(f"{name} must be {usual} in a recurrent network, not {getattr(config, name)}")
    if config.hidden_size % 2:
        raise ValueError(f"hidden_size must be even, half of it for each direction, not {config.hidden_size}")
    if layer.cell_size <= config.hidden_size // 2:
        raise ValueError(
            f"layer.cell_size {layer.cell_size} must be above half of hidden_size, which it is projected to, "
            f"{config.hidden_size // 2}"
        )
