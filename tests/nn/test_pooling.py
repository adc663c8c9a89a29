"""Pooling: values worked by hand, and sentence-transformers' own module as the specification."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.errors import UnmaskError
from unmask.nn.pooling import MODES, Mode, Pooling, pool

STATES = torch.tensor([[1.0, 9.0], [3.0, 6.0], [8.0, 0.0], [-5.0, -1.0]])  # a text of three tokens, a text of one
LENGTHS = torch.tensor([3, 1])


@pytest.mark.parametrize(
    ("mode", "first"),
    [
        ("cls", [1, 9]), ("lasttoken", [8, 0]), ("max", [8, 9]), ("mean", [4, 5]),
        ("mean_sqrt_len_tokens", [12 / 3**0.5, 15 / 3**0.5]), ("weightedmean", [(1 + 6 + 24) / 6, (9 + 12) / 6]),
    ],
)  # fmt: skip
def test_each_mode_is_what_its_name_says(mode: Mode, first: list[float]) -> None:
    vectors = pool(STATES, LENGTHS, Pooling((mode,)))
    assert torch.allclose(vectors, torch.tensor([first, [-5.0, -1.0]]))


@pytest.mark.parametrize(
    ("mode", "first"),
    [("cls", [3, 6]), ("max", [8, 6]), ("mean", [5.5, 3]), ("weightedmean", [(6 + 24) / 5, 12 / 5])],
)
def test_a_prompt_is_left_out_but_not_a_text_that_is_no_longer_than_it(mode: Mode, first: list[float]) -> None:
    vectors = pool(STATES, LENGTHS, Pooling((mode,), skip=1))
    assert torch.allclose(vectors, torch.tensor([first, [-5.0, -1.0]]))


def test_several_modes_stand_side_by_side() -> None:
    both = pool(STATES, LENGTHS, Pooling.of(["cls", "mean"]))
    assert torch.allclose(both, torch.tensor([[1.0, 9.0, 4.0, 5.0], [-5.0, -1.0, -5.0, -1.0]]))


def test_an_unknown_mode_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnmaskError, match="unknown pooling 'average'") as caught:
        Pooling.of("average")
    assert "cls, max, mean" in caught.value.do


@pytest.mark.slow  # importing their library takes seconds
@settings(deadline=None, max_examples=40)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6), skip=st.integers(0, 3), seed=st.integers(0, 99))
def test_all_modes_equal_sentence_transformers(lengths: list[int], skip: int, seed: int) -> None:
    module = pytest.importorskip("sentence_transformers.sentence_transformer.modules.pooling")
    skip = min(skip, min(lengths) - 1)  # theirs divides by zero for a text that is all prompt
    states = torch.randn(sum(lengths), 5, generator=torch.Generator().manual_seed(seed))
    grid, mask = torch.zeros(len(lengths), max(lengths), 5), torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    for row, part in enumerate(states.split(lengths)):
        grid[row, : len(part)], mask[row, : len(part)] = part, 1
    theirs = module.Pooling(5, pooling_mode=MODES, include_prompt=False)
    wanted = theirs({"token_embeddings": grid, "attention_mask": mask, "prompt_length": skip})["sentence_embedding"]
    assert (pool(states, torch.tensor(lengths), Pooling(MODES, skip)) - wanted).abs().max() < 1e-5
