"""The CRF against brute force: every path of tags written out, scored and counted in double precision."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tag_grammars import is_legal
from torch import Tensor

from unmask.batch import Layout
from unmask.errors import UnmaskError
from unmask.nn.crf import CRF, Allowed, allowed_transitions

BIO = ("O", "B-a", "I-a", "B-b", "I-b")
SCHEMES = {
    "bio": BIO,
    "bios": ("O", "B-a", "I-a", "S-a", "B-b", "I-b"),
    "bioes": ("O", "B-a", "I-a", "E-a", "S-a", "B-b", "E-b"),
    "bilou": ("O", "B-a", "I-a", "L-a", "U-a", "B-b", "L-b"),
    "bmes": ("B", "M", "E", "S"),  # words, without types
    "bmewo": ("W-b", "O", "B-a", "M-a", "E-a", "W-a", "M-b"),
    "plain": ("NN", "VB", "JJ"),
}
CASES = [(f"plain-{k}", tuple(f"T{i}" for i in range(k)), "plain") for k in (1, 2, 3, 4)]
CASES += [
    ("bio-4", BIO[:4], "bio"),
    ("bio-no-o", ("B-a", "I-a"), "bio"),
    ("bioes-4", ("S-a", "B-a", "E-a", "I-a"), "bioes"),
    ("bios-4", ("O", "B-a", "I-a", "S-a"), "bios"),
    ("bmes-4", ("B", "M", "E", "S"), "bmes"),
]
CASES += [("unreachable", ("O", "I-a", "B-b"), "bio")]
LENGTHS = [list(p) for p in ((1,), (5,), (1, 1), (2, 5, 1), (5, 4, 3, 2, 1), (1, 3, 3, 5))]


def random_crf(allowed: Allowed, seed: int = 0) -> CRF:
    crf, draw = CRF(allowed), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in crf.parameters():
            parameter.normal_(generator=draw)
    return crf


def ragged(lengths: list[int]) -> Layout:
    return Layout.of(torch.tensor([0, *lengths]).cumsum(0).int())


def words(lengths: list[int], tags: int, seed: int = 0) -> Tensor:
    return 2 * torch.randn(sum(lengths), tags, generator=torch.Generator().manual_seed(seed))


def every_path(crf: CRF, scores: Tensor, begins: bool = True, ends: bool = True) -> tuple[Tensor, Tensor]:
    """[P, L] all allowed paths of one sequence, and their scores [P] in double precision."""
    tags, places = range(scores.shape[1]), range(len(scores))
    start, steps, end = crf.may_start.tolist(), crf.may_follow.tolist(), crf.may_end.tolist()
    paths = [
        path
        for path in itertools.product(tags, repeat=len(scores))
        if (start[path[0]] or not begins)
        and (end[path[-1]] or not ends)
        and all(steps[i][j] for i, j in itertools.pairwise(path))
    ]
    chosen = torch.tensor(paths)
    total = sum(scores.double()[place, chosen[:, place]] for place in places)
    total = total + sum(crf.transitions.double()[chosen[:, p], chosen[:, p + 1]] for p in places[:-1])
    total = (
        total + (crf.start.double()[chosen[:, 0]] if begins else 0) + (crf.end.double()[chosen[:, -1]] if ends else 0)
    )
    return chosen, total


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_allowed_paths_are_those_that_the_scheme_can_spell(scheme: str) -> None:
    labels = SCHEMES[scheme]
    allowed = allowed_transitions(labels, scheme)
    for length in (1, 2, 3, 4):
        paths = list(itertools.product(range(len(labels)), repeat=length))
        starts = torch.arange(0, length * len(paths) + 1, length)
        broken = allowed.broken(torch.tensor(paths).flatten(), starts).view(-1, length).any(1)
        spelled = [scheme == "plain" or is_legal([labels[tag] for tag in path], scheme) for path in paths]
        assert spelled == (~broken).tolist()


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize(("labels", "scheme"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_everything_equals_brute_force(labels: tuple[str, ...], scheme: str, lengths: list[int]) -> None:
    crf, layout = random_crf(allowed_transitions(labels, scheme)), ragged(lengths)
    scores = words(lengths, len(labels))
    partition, marginals, best = (f(scores, layout) for f in (crf.log_partition, crf.marginals, crf.best))
    for row, (begin, end) in enumerate(itertools.pairwise(layout.starts.tolist())):
        paths, total = every_path(crf, scores[begin:end])
        torch.testing.assert_close(partition[row].double(), total.logsumexp(0), atol=2e-5, rtol=0)
        assert torch.equal(best[begin:end], paths[total.argmax()])
        shares = torch.zeros(end - begin, len(labels), dtype=torch.double)
        for place in range(end - begin):
            shares[place].index_add_(0, paths[:, place], total.detach().softmax(0))
        torch.testing.assert_close(marginals[begin:end].double(), shares, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("labels", "scheme"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_the_likelihood_and_every_gradient_equal_brute_force(labels: tuple[str, ...], scheme: str) -> None:
    """Also where no path leads to a tag, where others have NaN."""
    lengths = [3, 1, 5, 2]
    crf, layout = random_crf(allowed_transitions(labels, scheme)), ragged(lengths)
    scores = words(lengths, len(labels)).requires_grad_()
    truth, expected = [], torch.zeros((), dtype=torch.double)
    for row, (begin, end) in enumerate(itertools.pairwise(layout.starts.tolist())):
        paths, total = every_path(crf, scores[begin:end])
        chosen = (7 * row) % len(paths)
        truth.append(paths[chosen])
        expected = expected + total[chosen] - total.logsumexp(0)
    ours = crf.log_likelihood(scores, torch.cat(truth), layout)
    torch.testing.assert_close(ours.double(), expected, atol=2e-5, rtol=0)
    asked = (scores, *crf.parameters())
    pairs = zip(torch.autograd.grad(ours, asked), torch.autograd.grad(expected, asked), strict=True)
    for mine, theirs in pairs:
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=0)


@pytest.mark.parametrize("edges", [(True, True), (True, False), (False, True), (False, False)])
def test_a_piece_of_a_text_may_begin_and_end_inside_an_entity(edges: tuple[bool, bool]) -> None:
    lengths = [4, 1, 3]
    crf, layout = random_crf(allowed_transitions(("O", "B-a", "I-a", "E-a"), "bioes")), ragged(lengths)
    scores, which = words(lengths, 4), torch.tensor([edges, (True, True), edges])
    partition, best = crf.log_partition(scores, layout, which), crf.best(scores, layout, which)
    marginals = crf.marginals(scores, layout, which)
    for row, (begin, end) in enumerate(itertools.pairwise(layout.starts.tolist())):
        paths, total = every_path(crf, scores[begin:end], *which[row].tolist())
        torch.testing.assert_close(partition[row].double(), total.logsumexp(0), atol=2e-5, rtol=0)
        assert torch.equal(best[begin:end], paths[total.argmax()])
        shares = torch.zeros(4, dtype=torch.double).index_add_(0, paths[:, 0], total.detach().softmax(0))
        torch.testing.assert_close(marginals[begin].double(), shares, atol=1e-5, rtol=0)


@settings(max_examples=60, deadline=None)
@given(
    scheme=st.sampled_from([scheme for scheme in SCHEMES if scheme != "plain"]),
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    size=st.sampled_from([0.0, 1.0, 1e3, 1e9]),
    seed=st.integers(0, 2**31),
)
def test_no_scores_make_it_say_what_the_scheme_forbids(scheme: str, lengths: list[int], size: float, seed: int) -> None:
    """Elsewhere a forbidden step costs 10,000, which a sure model pays."""
    labels = SCHEMES[scheme]
    crf, layout = random_crf(allowed_transitions(labels, scheme), seed), ragged(lengths)
    with torch.no_grad():
        crf.transitions *= size
    best, marginals = (f(size * words(lengths, len(labels), seed), layout) for f in (crf.best, crf.marginals))
    for begin, end in itertools.pairwise(layout.starts.tolist()):
        assert is_legal([labels[tag] for tag in best[begin:end].tolist()], scheme)
    assert torch.isfinite(marginals).all()
    torch.testing.assert_close(marginals.sum(1), torch.ones(len(best)))


@settings(max_examples=30, deadline=None)
@given(lengths=st.lists(st.integers(1, 30), min_size=2, max_size=8), seed=st.integers(0, 2**31))
def test_an_answer_does_not_depend_on_batch_mates(lengths: list[int], seed: int) -> None:
    crf, layout = random_crf(allowed_transitions(BIO, "bio"), seed), ragged(lengths)
    scores = words(lengths, len(BIO), seed)
    partition, marginals, best = (f(scores, layout) for f in (crf.log_partition, crf.marginals, crf.best))
    for row, (begin, end) in enumerate(itertools.pairwise(layout.starts.tolist())):
        own, alone = scores[begin:end], ragged([end - begin])
        torch.testing.assert_close(crf.log_partition(own, alone)[0], partition[row], atol=1e-5, rtol=1e-6)
        torch.testing.assert_close(crf.marginals(own, alone), marginals[begin:end], atol=1e-5, rtol=0)
        assert torch.equal(crf.best(own, alone), best[begin:end])


def test_a_thousand_words_cost_no_precision() -> None:
    """Elsewhere scores are added up over the whole sequence, and fp32 loses the digits that the gradient is made of."""
    lengths = [1000, 3]
    crf, layout = random_crf(allowed_transitions(BIO, "bio")), ragged(lengths)
    scores = (50 + 10 * words(lengths, len(BIO))).requires_grad_()
    truth = crf.best(words(lengths, len(BIO), 1), layout)
    mine = torch.autograd.grad(crf.log_likelihood(scores, truth, layout), scores)[0]
    exact = scores.detach().double().requires_grad_()
    total = torch.zeros((), dtype=torch.double)
    start, steps, end = (x.double() for x in crf._chain(None, layout))
    for row, (begin, stop) in enumerate(itertools.pairwise(layout.starts.tolist())):
        at = start[row] + exact[begin]
        for place in range(begin + 1, stop):
            at = (at[:, None] + steps).logsumexp(0) + exact[place]
        total = total + (at + end[row]).logsumexp(0)
    shares = torch.autograd.grad(total, exact)[0]
    wanted = torch.nn.functional.one_hot(truth, len(BIO)) - shares
    torch.testing.assert_close(mine.double(), wanted, atol=2e-5, rtol=0)
    torch.testing.assert_close(crf.marginals(scores.detach(), layout).double(), shares, atol=2e-5, rtol=0)


def test_half_precision_scores_are_calculated_with_in_single() -> None:
    lengths = [3, 7]
    crf, layout = random_crf(allowed_transitions(BIO, "bio")), ragged(lengths)
    scores, truth = words(lengths, len(BIO)).bfloat16(), torch.zeros(10, dtype=torch.int64)
    expected = crf.log_likelihood(scores.float(), truth, layout)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(crf.log_likelihood(scores, truth, layout), expected)
    assert expected.dtype == crf.marginals(scores, layout).dtype == torch.float32


def test_new_scores_leave_all_allowed_paths_equally_likely() -> None:
    allowed, layout = allowed_transitions(BIO[:3], "bio"), ragged([3])
    legal = sum(is_legal(path, "bio") for path in itertools.product(BIO[:3], repeat=3))
    ours = CRF(allowed).log_likelihood(torch.zeros(3, 3), torch.tensor([1, 2, 0]), layout)
    assert float(ours.detach()) == pytest.approx(-torch.tensor(float(legal)).log().item(), abs=1e-6)


def test_B165_transitions_lead_from_word_to_word_of_one_sequence() -> None:
    """pytorch-crf: what is no word (a first [CLS], a [SEP], a second piece) took part in transitions."""
    crf, lengths = random_crf(allowed_transitions(BIO, "bio")), [2, 1, 3]
    scores, truth, layout = words(lengths, len(BIO)), torch.tensor([1, 2, 0, 1, 2, 2]), ragged(lengths)
    whole = crf.log_likelihood(scores, truth, layout)
    parts = [
        crf.log_likelihood(scores[a:b], truth[a:b], ragged([b - a]))
        for a, b in itertools.pairwise(layout.starts.tolist())
    ]
    torch.testing.assert_close(whole, torch.stack(parts).sum(), atol=1e-5, rtol=0)


def test_gold_tags_that_break_the_scheme_are_refused() -> None:
    crf, layout = CRF(allowed_transitions(BIO, "bio")), ragged([3])
    for path in ([2, 0, 0], [0, 2, 2], [1, 4, 0]):
        with pytest.raises(ValueError, match="break their scheme"):
            crf.log_likelihood(torch.zeros(3, 5), torch.tensor(path), layout)


def test_no_words_are_no_loss() -> None:
    crf = CRF(allowed_transitions(BIO, "bio"))
    scores = torch.zeros(0, 5, requires_grad=True)
    total = crf.log_likelihood(scores, torch.zeros(0, dtype=torch.int64), ragged([]))
    total.backward()
    assert float(total.detach()) == 0


@pytest.mark.parametrize(
    ("labels", "scheme", "said"),
    [
        (("O", "NN"), "bio", "'NN' is not a tag of the scheme bio"),
        (("O", "S-a"), "bio", "'S-a' is not a tag of the scheme bio"),
        (("O", "T-a"), "bioes", "'T-a' is not a tag of the scheme bioes"),
        (("O", "M-a"), "bios", "'M-a' is not a tag of the scheme bios"),
        (("O-x",), "bio", "'O-x' is not a tag"),
        (("I-a", "I-b"), "bio", "no word can stand alone"),
        (("B-a", "E-a"), "bioes", "no word can stand alone"),
        (("B-a", "I-a"), "bios", "no word can stand alone"),
    ],
)
def test_labels_that_are_no_scheme_are_named(labels: tuple[str, ...], scheme: str, said: str) -> None:
    with pytest.raises(UnmaskError, match=said):
        allowed_transitions(labels, scheme)


def test_types_with_hyphens_and_spaces_and_without_a_name_are_types() -> None:
    labels = ("O", "B-time-of day", "I-time-of day", "B-人名", "I-人名", "B", "I")
    steps = allowed_transitions(labels, "bio").steps_KK
    follows = {(labels[i], labels[j]) for i, j in steps.nonzero().tolist() if labels[j].startswith("I")}
    kinds = ("-time-of day", "-人名", "")
    assert follows == {(prefix + kind, "I" + kind) for kind in kinds for prefix in "BI"}


def test_a_saved_crf_holds_what_it_learned_alone() -> None:
    assert set(CRF(allowed_transitions(BIO, "bio")).state_dict()) == {"start", "transitions", "end"}
