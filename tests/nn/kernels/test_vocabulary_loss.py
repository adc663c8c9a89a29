"""The chunked cross entropy over a vocabulary against its plain twin, and against numbers in twice the precision."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from unmask.nn.kernels import vocabulary
from unmask.nn.kernels.vocabulary import Logits, Scored, sample, score_plainly

SIZE, WIDTH, ROWS = 700, 24, 8  # two whole blocks of columns and a part of one; rows of a chunk here


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "ROWS", (1, ROWS))


def head(
    count: int, *, size: int = SIZE, bias: bool = True, scale: float = 1.0, kind: torch.dtype = torch.float32
) -> tuple[Logits, Tensor, Tensor]:
    """Leaves that want a gradient, the tokens that are right, and numbers to draw with."""
    draw = torch.Generator().manual_seed(count + size)
    x, weight, b = (torch.randn(*shape, generator=draw) for shape in ((count, WIDTH), (size, WIDTH), (size,)))
    leaves = [(t * s).to(kind).requires_grad_() for t, s in ((x, 1.0), (weight, scale), (b, 1.0))]
    value = torch.randint(0, size, (count,), generator=draw)
    uniform = torch.rand(count, generator=draw, dtype=torch.float64)
    return Logits(leaves[0], leaves[1], leaves[2] if bias else None), value, uniform


def gradients(scored: Scored, logits: Logits) -> tuple[Tensor, ...]:
    return torch.autograd.grad(0.3 * scored.total, [t for t in logits if t is not None])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("count", [0, 1, ROWS - 1, ROWS, ROWS + 1, 5 * ROWS + 3])
def test_chunks_give_what_the_plain_twin_gives(count: int, bias: bool) -> None:
    logits, value, uniform = head(count, bias=bias)
    found = logits.score(value, count=True, uniform_M=uniform)
    wanted = score_plainly(logits, value, count=True, uniform_M=uniform)
    torch.testing.assert_close(found.total, wanted.total, rtol=1e-5, atol=1e-5)
    assert torch.equal(found.correct, wanted.correct) and torch.equal(found.drawn, wanted.drawn)
    for own, plain in zip(gradients(found, logits), gradients(wanted, logits), strict=True):
        torch.testing.assert_close(own, plain, rtol=1e-4, atol=1e-4)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 20), st.sampled_from([1, 2, 255, 256, 257, 600]), st.booleans())
def test_in_double_precision_the_two_are_one(count: int, size: int, bias: bool) -> None:
    logits, value, uniform = head(count, size=size, bias=bias, kind=torch.float64)
    found = logits.score(value, count=True, uniform_M=uniform)
    wanted = score_plainly(logits, value, count=True, uniform_M=uniform)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    for own, plain in zip(gradients(found, logits), gradients(wanted, logits), strict=True):
        torch.testing.assert_close(own, plain, rtol=1e-12, atol=1e-12)


def test_the_gradient_is_the_slope() -> None:
    """Central differences in double precision, one number of x, W and b after the other; no autograd on the other side."""
    logits, value, _ = head(3, size=5, kind=torch.float64)
    found = torch.autograd.grad(logits.score(value).total, [t for t in logits if t is not None])
    for leaf, slope in zip(logits, found, strict=True):
        for i in range(leaf.numel()):
            ends = []
            for step in (1e-6, -1e-6):
                with torch.no_grad():
                    leaf.view(-1)[i] += step
                    ends.append(logits.score(value).total)
                    leaf.view(-1)[i] -= step
            assert abs(float(ends[0] - ends[1]) / 2e-6 - float(slope.view(-1)[i])) < 1e-7


def test_a_token_that_is_next_to_impossible_costs_what_it_should() -> None:
    """Logits of deviation 250: its probability is 0 in single precision, and the log of that would be infinite."""
    logits, value, _ = head(40, scale=50.0)
    exact = Logits(*(t.detach().double().requires_grad_() for t in logits))
    found, wanted = logits.score(value), score_plainly(exact, value, count=False, uniform_M=None)
    assert (logits.dense().softmax(-1).gather(1, value[:, None]) == 0).any()
    torch.testing.assert_close(found.total.double(), wanted.total, rtol=1e-5, atol=1e-5)
    for own, slope in zip(gradients(found, logits), gradients(wanted, exact), strict=True):
        torch.testing.assert_close(own.double(), slope, rtol=1e-4, atol=1e-3)  # of W's numbers, up to 200


def test_two_heads_and_an_embedding_add_up_in_one_matrix() -> None:
    logits, value, _ = head(20)
    other = head(11)[0].x_ME
    table, ids = logits.weight_VE, torch.arange(0, SIZE, 7)

    def loss(plainly: bool) -> Tensor:
        looked_up = nn.functional.embedding(ids, table).square().sum()
        for x, right, b in ((logits.x_ME, value, logits.bias_V), (other, value[:11], None)):
            one = Logits(x, table, b)
            scored = score_plainly(one, right, count=False, uniform_M=None) if plainly else one.score(right)
            looked_up = looked_up + scored.total / len(right)
        return looked_up

    found, wanted = (torch.autograd.grad(loss(plainly), (table, logits.x_ME, other)) for plainly in (False, True))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_only_the_gradients_that_are_wanted_are_made() -> None:
    logits, value, _ = head(20)
    wanted = gradients(logits.score(value), logits)
    for i in range(3):
        leaves = [t.detach().requires_grad_(k == i) for k, t in enumerate(logits)]
        Logits(*leaves).score(value).total.mul(0.3).backward()
        assert [t.grad is not None for t in leaves] == [k == i for k in range(3)]
        torch.testing.assert_close(leaves[i].grad, wanted[i], rtol=1e-4, atol=1e-5)


def test_where_nothing_is_learned_no_gradient_is_worked_out(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, value, uniform = head(20)
    wanted = score_plainly(logits, value, count=True, uniform_M=uniform)
    monkeypatch.setattr(vocabulary, "_add_gradients", None)
    for state in (torch.no_grad(), torch.inference_mode()):
        with state:
            torch.testing.assert_close(logits.score(value, count=True, uniform_M=uniform), wanted, rtol=1e-5, atol=1e-5)


def test_a_loss_is_differentiated_once() -> None:
    """Its gradients are given away and scaled in place, so a second time would be wrong: it is refused."""
    logits, value, _ = head(5)
    total = logits.score(value).total
    total.backward(retain_graph=True)
    before = logits.weight_VE.grad.clone()
    with pytest.raises(RuntimeError, match="already differentiated"):
        total.backward()
    assert torch.equal(logits.weight_VE.grad, before)


def test_a_step_in_half_precision_is_near_and_its_sums_are_whole() -> None:
    logits, value, uniform = head(60)
    with torch.autocast("cpu", torch.bfloat16):
        found = logits.score(value, count=True, uniform_M=uniform)
        wanted = score_plainly(logits, value, count=True, uniform_M=uniform)
    assert found.total.dtype == torch.float32
    torch.testing.assert_close(found.total, wanted.total, rtol=1e-5, atol=1e-5)
    assert torch.equal(found.correct, wanted.correct) and float((found.drawn == wanted.drawn).float().mean()) > 0.9
    exact = gradients(score_plainly(logits, value, count=False, uniform_M=None), logits)
    for own, slope in zip(gradients(found, logits), exact, strict=True):
        assert own.dtype == torch.float32
        assert float((own - slope).norm() / slope.norm()) < 0.02


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 20), st.sampled_from([1, 7, 255, 256, 257, 512, 1100]), st.floats(0.1, 30.0))
def test_draws_are_the_plain_ones_and_never_of_probability_0(count: int, size: int, scale: float) -> None:
    """The running sum by blocks is the running sum, but for numbers in the last bits of a border between two tokens."""
    logits, value, uniform = head(count, size=size, scale=scale, kind=torch.float64)
    uniform[::3], uniform[1::3] = 0.0, 1 - 2**-53
    with torch.no_grad():
        drawn = logits.score(value, uniform_M=uniform).drawn
        chances = logits.dense().softmax(-1)
    assert (chances.gather(1, drawn[:, None]) > 0).all()
    inner = torch.ones(count, dtype=torch.bool)
    inner[::3] = inner[1::3] = False
    assert torch.equal(drawn[inner], sample(logits.dense(), uniform)[inner])


def test_a_network_that_is_traced_takes_the_plain_way(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, value, _ = head(5)
    monkeypatch.setattr(vocabulary, "_score", None)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert logits.score(value).total.requires_grad
    monkeypatch.undo()
    monkeypatch.setattr(vocabulary, "_score", None)
    assert Logits(*(t.to("meta") for t in logits)).score(value.to("meta")).total.is_meta


def test_a_chunk_is_never_more_than_its_share_of_the_logits() -> None:
    monkey = pytest.MonkeyPatch()
    monkey.setattr(vocabulary, "ROWS", (64, 256))
    for size, device, most in ((100, "cpu", 256), (30_522, "cpu", 137), (250_000, "cpu", 64), (30_522, "cuda", 2198)):
        sizes = [rows.stop - rows.start for rows in vocabulary._chunks(5001, size, device)]
        assert sum(sizes) == 5001 and max(sizes) < most + vocabulary.ROUND
        assert len(set(sizes[:-1])) == 1 and sizes[0] % vocabulary.ROUND == 0, "sizes that come again"
    monkey.undo()
