"""How a network knows places: RoPE's turns, T5's and DeBERTa's buckets, against their formulas written out."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import VARIANTS, our_network, sequences
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

from unmask.batch import PackedBatch
from unmask.config import Disentangled, RelativeBias
from unmask.nn.kernels.rotary import rotate
from unmask.nn.places import Places, Turns, deberta_buckets, t5_buckets, turns


def test_a_quarter_turn_by_hand() -> None:
    """θ = (2/π)² and K = 4: the pairs turn by 1 and by π/2 a place."""
    cosine, sine = turns(torch.tensor([0, 1, 2]), (2 / math.pi) ** 2, 4)
    assert torch.allclose(cosine[:, 0, 1], torch.tensor([1.0, 0.0, -1.0]), atol=1e-6)
    x = torch.tensor([1.0, 2.0, 3.0, 4.0]).expand(3, 1, 4)
    found = rotate(x, cosine, sine)[:, 0]
    assert torch.allclose(found[0], x[0, 0])
    assert torch.allclose(found[1, [1, 3]], torch.tensor([-4.0, 2.0]), atol=1e-5)
    c, s = math.cos(1), math.sin(1)
    assert torch.allclose(found[1, [0, 2]], torch.tensor([c - 3 * s, 3 * c + s]), atol=1e-5)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 8), st.sampled_from([10.0, 1e4, 160_000.0]), st.integers(0, 500), st.integers(0, 500))
def test_turned_scores_depend_on_the_distance_alone_and_lengths_stay(half: int, theta: float, a: int, b: int) -> None:
    draw = torch.Generator().manual_seed(half)
    q, k = torch.randn(2, 1, 1, 2 * half, generator=draw, dtype=torch.float64)
    at = lambda x, place: rotate(x, *(t.double() for t in turns(torch.tensor([place]), theta, 2 * half)))
    score = (at(q, a) * at(k, b)).sum()
    shifted = (at(q, a + 13) * at(k, b + 13)).sum()
    torch.testing.assert_close(score, shifted, atol=2e-3, rtol=2e-3)  # angles are made in float32
    torch.testing.assert_close(at(q, a).norm(), q.norm(), atol=1e-5, rtol=1e-5)


def test_one_theta_is_turned_once_and_two_are_told_apart() -> None:
    config = VARIANTS["modernbert"]
    known = Places(config)(PackedBatch.pack([[5] * 9]).layout)
    assert isinstance(known, Turns) and not torch.equal(known.everywhere[0], known.local[0])
    known = Places(VARIANTS["neobert"])(PackedBatch.pack([[5] * 9]).layout)
    assert isinstance(known, Turns) and known.everywhere is known.local


def _t5_literally(distance: int, buckets: int, most: int, both_sides: bool) -> int:
    """The paper's and its code's rule, one distance at a time."""
    start = 0
    if both_sides:
        buckets //= 2
        start = buckets if distance > 0 else 0
        distance = abs(distance)
    else:
        distance = max(-distance, 0)
    exact = buckets // 2
    if distance < exact:
        return start + distance
    far = exact + int(math.log(distance / exact) / math.log(most / exact) * (buckets - exact) + 1e-6)
    return start + min(far, buckets - 1)


@pytest.mark.parametrize("both_sides", [True, False])
@pytest.mark.parametrize(("buckets", "most"), [(32, 128), (8, 20), (64, 1024)])
def test_t5_buckets_are_the_published_ones(buckets: int, most: int, both_sides: bool) -> None:
    distance = torch.arange(-200, 201)
    found = t5_buckets(distance, RelativeBias(num_buckets=buckets, max_distance=most), both_sides=both_sides)
    assert found.tolist() == [_t5_literally(d, buckets, most, both_sides) for d in distance.tolist()]
    assert 0 <= int(found.min()) and int(found.max()) < buckets


def _deberta_literally(distance: int, buckets: int, most: int) -> int:
    middle = buckets // 2
    if abs(distance) <= middle:
        return distance
    far = math.ceil(math.log(abs(distance) / middle) / math.log((most - 1) / middle) * (middle - 1) - 1e-6) + middle
    return far if distance > 0 else -far


@pytest.mark.parametrize(("buckets", "most"), [(256, 512), (8, 64), (32, 20)])
def test_deberta_buckets_are_the_published_ones(buckets: int, most: int) -> None:
    d = Disentangled(position_buckets=buckets, max_relative_positions=most)
    distance = torch.arange(1 - most, most)
    found = deberta_buckets(distance, d)
    assert found.tolist() == [_deberta_literally(x, buckets, most) for x in distance.tolist()]
    assert torch.equal(found, -found.flip(0)) and int(found.abs().max()) < buckets


def test_a_network_of_any_size_exports_the_buckets_it_was_trained_with() -> None:
    """A row is where `ceil` falls, so the last bit of the logarithms counts: both must be fp32, as in transformers."""
    distance = torch.arange(-300, 301)
    differing = []
    for buckets in range(2, 66, 2):
        for most in range(buckets // 2 + 2, 2 * buckets + 2):
            ours = deberta_buckets(distance, Disentangled(position_buckets=buckets, max_relative_positions=most))
            theirs = make_log_bucket_position(distance, buckets, most).long()
            rows = ((found + buckets).clamp(0, 2 * buckets - 1) for found in (ours, theirs))
            if not torch.equal(*rows):
                differing.append((buckets, most))
    assert not differing


def test_without_buckets_every_distance_has_a_row_of_its_own() -> None:
    d = Disentangled(position_buckets=0, max_relative_positions=20, normed=False, shared_projections=False)
    assert deberta_buckets(torch.arange(-30, 31), d).tolist() == list(range(-30, 31))
    assert d.span == 20


@pytest.mark.parametrize("name", ["deberta-v1", "deberta-v2", "deberta-v3", "t5", "modernbert", "neobert"])
def test_no_place_is_beyond_a_network_with_relative_places(name: str) -> None:
    """max_position_embeddings is what they are meant for, not what they can: far distances share rows."""
    encoder, _ = our_network(VARIANTS[name], ())
    with torch.no_grad():
        assert bool(encoder(sequences([150], VARIANTS[name])).isfinite().all())


@pytest.mark.parametrize("name", ["deberta-v1", "deberta-v3", "t5", "modernbert", "neobert", "gpt2"])
def test_words_in_another_order_are_another_text(name: str) -> None:
    encoder, _ = our_network(VARIANTS[name], ())
    with torch.no_grad():
        one, other = (encoder(PackedBatch.pack([ids]))[2] for ids in ([5, 6, 7, 8], [6, 5, 7, 8]))
    assert (one - other).abs().max() > 1e-4
