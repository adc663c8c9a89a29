"""The size of a generator beside its encoder."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.config import Absolute, Disentangled, EncoderConfig, ReplacedTokens, Rope
from unmask.objectives.replaced import generator_config

ELECTRA_SMALL = EncoderConfig(
    hidden_size=256, embedding_size=128, num_attention_heads=4, intermediate_size=1024, num_hidden_layers=12
)
ELECTRA_LARGE = EncoderConfig(hidden_size=1024, num_attention_heads=16, intermediate_size=4096, num_hidden_layers=24)


@pytest.mark.parametrize(
    ("config", "width", "depth", "expected"),
    [
        (ELECTRA_SMALL, 0.25, 1.0, (64, 128, 12, 1, 256)),  # ELECTRA, table 6
        (ELECTRA_SMALL, 1.0, 1.0, (256, 128, 12, 4, 1024)),  # as released
        (EncoderConfig(), 1 / 3, 1.0, (256, 768, 12, 4, 1024)),
        (EncoderConfig(), 0.3333, 1.0, (256, 768, 12, 4, 1024)),
        (ELECTRA_LARGE, 0.25, 1.0, (256, 1024, 24, 4, 1024)),
        (
            EncoderConfig(positions=Disentangled(), type_vocab_size=0),
            1.0,
            0.5,
            (768, 0, 6, 12, 3072),
        ),  # DeBERTa-v3 base
    ],
)
def test_generators_have_the_published_sizes(
    config: EncoderConfig, width: float, depth: float, expected: tuple[int, ...]
) -> None:
    small = generator_config(config, ReplacedTokens(generator_width=width, generator_depth=depth))
    found = (small.hidden_size, small.embedding_size, small.num_hidden_layers, small.num_attention_heads)
    assert (*found, small.intermediate_size) == expected
    assert small.table_size == config.table_size and small.key_size == config.key_size


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 16),
    st.integers(1, 40),
    st.sampled_from([0, 2, 24]),
    st.sampled_from([0, 8]),
    st.integers(1, 24),
    st.integers(0, 3),
    st.floats(0.01, 1.5),
    st.floats(0.01, 1.5),
    st.booleans(),
)
def test_any_encoder_has_a_generator(
    heads: int, key: int, size: int, narrow: int, layers: int, groups: int, width: float, depth: float, rope: bool
) -> None:
    config = EncoderConfig(
        hidden_size=heads * key * 2,
        num_attention_heads=heads,
        head_size=size,
        embedding_size=narrow,
        num_hidden_layers=layers,
        num_hidden_groups=min(groups, layers),
        positions=Rope() if rope else Absolute(),
        head_transform=False,
    )
    small = generator_config(
        config, ReplacedTokens(generator_width=width, generator_depth=depth)
    )  # valid, or it raises
    assert small.table_size == config.table_size
    assert small.head_transform or small.hidden_size == small.table_size  # else its head doesn't fit the tables


def test_a_generator_keeps_the_pattern_of_local_layers() -> None:
    config = EncoderConfig(positions=Rope(), num_hidden_layers=12, local_attention=128, global_attn_every_n_layers=3)
    small = generator_config(config, ReplacedTokens(generator_depth=0.5))
    assert [small.window_of(i) for i in range(6)] == [0, 64, 64, 0, 64, 64]
