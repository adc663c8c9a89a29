from __future__ import annotations

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from made_up import VOCABULARY
from scipy import stats
from small_models import randomise

from unmask.batch import PackedBatch
from unmask.config import EncoderConfig, MaskedTokens, ReplacedTokens
from unmask.nn.cost import encoder_flops
from unmask.nn.encoder import Encoder
from unmask.nn.initial import initialise
from unmask.nn.kernels.vocabulary import sample
from unmask.objectives.base import combine
from unmask.objectives.replaced import ReplacedTokenObjective

CONFIG = EncoderConfig(
    vocab_size=64,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=32,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
SHARINGS = ("none", "tied", "gradient_disentangled")


def model(sharing: str = "none", **changes: object) -> tuple[Encoder, ReplacedTokenObjective]:
    goal = ReplacedTokens(**{"sharing": sharing, "generator_width": 0.5, **changes})
    encoder, objective = Encoder(CONFIG), ReplacedTokenObjective(CONFIG, goal, VOCABULARY)
    randomise(encoder, 1)
    randomise(objective, 2)
    objective.start(encoder)
    return encoder, objective


def batch_of(count: int = 12, seed: int = 0, length: int = 20) -> PackedBatch:
    rng = np.random.default_rng(seed)
    rows = [[2, *rng.integers(5, 64, rng.integers(4, length)).tolist(), 3] for _ in range(count)]
    types = [[int(place > len(row) // 2) for place in range(len(row))] for row in rows]
    return PackedBatch.pack(rows, types).with_(examples=torch.arange(count))


# --- its guesses -----------------------------------------------------------------------------------------------------
def test_a_guess_is_where_the_running_sum_of_probabilities_reaches_the_number() -> None:
    logits = torch.tensor([[0.1, 0.2, 0.0, 0.7]]).log().expand(5, 4)
    drawn = 1 - torch.tensor([0.05, 0.1001, 0.25, 0.3001, 0.99], dtype=torch.float64)
    assert sample(logits, drawn).tolist() == [0, 1, 1, 3, 3]


def test_guesses_follow_the_generators_distribution() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(1, 50, generator=generator) * 2
    count = 200_000
    guesses = sample(logits.expand(count, 50), torch.rand(count, dtype=torch.float64, generator=generator))
    expected = logits.double().softmax(-1)[0].numpy() * count
    assert stats.chisquare(np.bincount(guesses.numpy(), minlength=50), expected, sum_check=False).pvalue > 1e-3


def test_a_token_without_probability_is_never_guessed() -> None:
    """Rows beyond a tokenizer's end, or a head that rules a token out; at both ends of the interval too."""
    logits = torch.tensor([[-math.inf, 1.0, -math.inf, 1.0, -math.inf]])
    drawn = torch.tensor([0.0, 2.0**-53, 0.5 - 2**-30, 0.5, 0.5 + 2**-30, 1 - 2.0**-53], dtype=torch.float64)
    assert set(sample(logits.expand(6, 5), drawn).tolist()) == {1, 3}


def test_the_numbers_drawn_are_even_and_depend_on_the_example_alone() -> None:
    _, objective = model()
    whole = objective.prepare(batch_of(400), 3)
    assert stats.kstest(whole.labels["draw"].value.numpy(), "uniform").pvalue > 1e-3
    for i in (0, 5, 399):
        begin, end = int(whole.starts[i]), int(whole.starts[i + 1])
        row = batch_of(400).input_ids[begin:end].tolist()
        alone = objective.prepare(PackedBatch.pack([row]).with_(examples=torch.tensor([i])), 3)
        inside = (whole.labels["draw"].where >= begin) & (whole.labels["draw"].where < end)
        assert torch.equal(whole.labels["draw"].value[inside], alone.labels["draw"].value)
    other = objective.prepare(batch_of(400), 4).labels["draw"].value
    assert not np.isin(other.numpy(), whole.labels["draw"].value.numpy()).any()


def test_guesses_owe_nothing_to_the_global_random_state() -> None:
    encoder, objective = model()
    prepared = objective.prepare(batch_of(), 0)
    first = objective.begin(encoder, prepared)[0].input_ids
    torch.manual_seed(77)
    assert torch.equal(objective.begin(encoder, prepared)[0].input_ids, first)


# --- what the encoder is asked ---------------------------------------------------------------------------------------
def sure_of(objective: ReplacedTokenObjective, token: int) -> None:
    with torch.no_grad():
        objective.mlm.head.bias.fill_(-1e4)
        objective.mlm.head.bias[token] = 1e4


def test_a_guess_that_is_the_original_counts_as_original() -> None:
    encoder, objective = model()
    batch = PackedBatch.pack([[2, *[9] * 30, 3]]).with_(examples=torch.arange(1))
    prepared = objective.prepare(batch, 0)
    sure_of(objective, 9)
    filled, _ = objective.begin(encoder, prepared)
    assert torch.equal(filled.input_ids, batch.input_ids) and not filled.labels["rtd"].value.any()
    sure_of(objective, 8)
    filled, _ = objective.begin(encoder, prepared)
    wrong = filled.labels["rtd"].value.nonzero().squeeze(1)
    assert torch.equal(wrong, prepared.labels["mlm"].where) and set(filled.input_ids[wrong].tolist()) == {8}


@pytest.mark.parametrize("add_first", [False, True])
def test_the_loss_is_binary_cross_entropy_over_all_tokens(add_first: bool) -> None:
    encoder, objective = model(weight=7.0, add_first=add_first)
    objective.eval()
    prepared = objective.prepare(batch_of(), 0)
    losses = objective(encoder, prepared)
    filled, _ = objective.begin(encoder, prepared)
    original = batch_of().input_ids
    head, hidden = objective.head.requires_grad_(False), encoder(filled).detach()
    total, right = 0.0, 0
    for row in range(12):
        begin, end = int(filled.starts[row]), int(filled.starts[row + 1])
        for at in range(begin, end):
            x = hidden[at]
            if add_first:
                x = F.layer_norm(x + hidden[begin], (32,), head.norm.weight, head.norm.bias, 1e-12)
            score = float(head.out.weight[0] @ F.gelu(head.dense.weight @ x + head.dense.bias) + head.out.bias)
            replaced = int(filled.input_ids[at] != original[at])
            total += math.log1p(math.exp(-score if replaced else score))
            right += (score > 0) == bool(replaced)
    rtd = losses["rtd"]
    assert abs(float(rtd.total.detach()) - total) < 1e-3 and rtd.count == len(original) and int(rtd.correct) == right
    assert rtd.weight == 7.0 and losses["mlm"].weight == 1.0
    assert objective.counts(prepared) == {name: part.count for name, part in losses.items()}
    assert 0 < filled.labels["rtd"].value.sum() < len(original)


def test_the_generators_work_is_counted() -> None:
    _, objective = model()
    prepared = objective.prepare(batch_of(), 0)
    small, tokens, blanks = objective.generator.config, len(prepared.input_ids), len(prepared.labels["mlm"].where)
    head = 2 * blanks * (16 * 32 + 32 * 64) + 2 * tokens * (32 * 32 + 32)
    assert objective.flops(CONFIG, prepared) == encoder_flops(small, prepared.layout.lengths, reading=blanks) + head


# --- shared embeddings -----------------------------------------------------------------------------------------------
def gradients(sharing: str, loss: str) -> tuple[list[torch.Tensor | None], list[torch.Tensor | None], bool]:
    """Of the encoder's tables, of the generator's, and whether anything else of the generator has one."""
    encoder, objective = model(sharing)
    losses = objective(encoder, objective.prepare(batch_of(), 0))
    losses[loss].total.backward()
    own = [p.grad for p in encoder.embeddings.tables() if p is not None]
    other = [p.grad for p in objective.generator.embeddings.tables() if p is not None]
    tables = {id(p) for p in objective.generator.embeddings.tables()}
    rest = [p for m in (objective.generator, objective.mlm) for p in m.parameters() if id(p) not in tables]
    return own, other, any(p.grad is not None and bool(p.grad.any()) for p in rest)


def moved(grads: list[torch.Tensor | None]) -> list[bool]:
    return [g is not None and bool(g.any()) for g in grads]


@pytest.mark.parametrize("sharing", SHARINGS)
def test_no_gradient_of_the_encoders_loss_reaches_the_generator(sharing: str) -> None:
    own, other, rest = gradients(sharing, "rtd")
    assert moved(own) == [True] * 3  # E_delta, where disentangled
    assert not any(moved(other)) and not rest


@pytest.mark.parametrize("sharing", SHARINGS)
def test_the_generators_loss_moves_its_own_tables_unless_they_are_tied(sharing: str) -> None:
    own, other, rest = gradients(sharing, "mlm")
    assert rest
    if sharing == "tied":
        assert moved(own) == [True] * 3 and other == []
    else:
        assert not any(moved(own)) and moved(other) == [True] * 3


def test_tied_tables_are_stored_once_and_are_the_generators_output_matrix() -> None:
    encoder, objective = model("tied")
    assert not any("embeddings.tokens" in name for name in objective.state_dict())
    prepared = objective.prepare(batch_of(), 0)
    before = float(objective(encoder, prepared)["mlm"].total.detach())
    with torch.no_grad():
        encoder.embeddings.tokens.weight[63] += 1.0
    assert float(objective(encoder, prepared)["mlm"].total.detach()) != before


def literal_guess(logits: torch.Tensor, drawn: float) -> int:
    total, shares = 0.0, logits.double().softmax(-1).tolist()
    for token, share in enumerate(shares):
        total += share
        if total >= 1 - drawn:
            return token
    raise AssertionError


@pytest.mark.parametrize("sharing", SHARINGS)
def test_what_is_put_into_the_blanks_is_drawn_from_the_generators_logits(sharing: str) -> None:
    """In the pieces that its loss is computed in, and in evaluation too: the tokens that the plain way draws."""
    encoder, objective = model(sharing)
    prepared = objective.prepare(batch_of(), 3)
    where, value = prepared.labels["mlm"]
    with torch.no_grad():
        logits = objective.answers(encoder, prepared).dense()
    guess = sample(logits, prepared.labels["draw"].value)
    assert len(set(guess.tolist())) > 5 and not torch.equal(guess, value)
    for training in (True, False):
        filled, losses = objective.train(training).begin(encoder, prepared)
        assert torch.equal(filled.input_ids[where], guess)
        assert abs(float(losses["mlm"].total.detach() - F.cross_entropy(logits, value, reduction="sum"))) < 1e-3
    assert int(losses["mlm"].correct) == int((logits.argmax(-1) == value).sum())


def test_gradient_disentangled_sharing_is_the_papers() -> None:
    """DeBERTa-v3 section 3.3, literally: E_D = sg(E_G) + E_delta is written into a second encoder's tables before each step,
    the MLM loss moves E_G, and the gradient of the RTD loss for E_D moves E_delta. Both losses take their step together.
    """
    encoder, objective = model("gradient_disentangled")
    for module in (encoder, objective):
        initialise(module, replace(CONFIG, initializer_range=0.1), torch.Generator().manual_seed(5))
    objective.start(encoder)
    generator, mlm, head = (copy.deepcopy(m) for m in (objective.generator, objective.mlm, objective.head))
    reader = copy.deepcopy(encoder)
    given, tables = generator.embeddings.tables(), reader.embeddings.tables()
    deltas = [torch.zeros_like(table) for table in tables]
    rate, batches = 0.1, [objective.prepare(batch_of(seed=step), step) for step in range(4)]
    ours = torch.optim.SGD([*encoder.parameters(), *objective.parameters()], rate)
    theirs = [*reader.parameters(), *generator.parameters(), *mlm.parameters(), *head.parameters()]
    for prepared in batches:
        ours.zero_grad()
        combine(objective(encoder, prepared), objective.counts(prepared)).backward()
        ours.step()

        with torch.no_grad():
            for table, shared, delta in zip(tables, given, deltas, strict=True):
                table.copy_(shared + delta)
        where, value = prepared.labels["mlm"]
        logits = mlm.head(generator(prepared)[where], given.tokens).dense()
        guess = torch.tensor(
            [literal_guess(row, u) for row, u in zip(logits, prepared.labels["draw"].value.tolist(), strict=True)]
        )
        filled = prepared.input_ids.index_copy(0, where, guess)
        wrong = torch.zeros(len(filled)).index_copy(0, where, (guess != value).float())
        scores = head(reader(prepared.with_(input_ids=filled)), torch.zeros(()))
        rtd = F.binary_cross_entropy_with_logits(scores, wrong, reduction="mean")
        loss = F.cross_entropy(logits, value) + 50 * rtd
        grads = torch.autograd.grad(loss, theirs, allow_unused=True)
        with torch.no_grad():
            for parameter, grad in zip(theirs, grads, strict=True):
                at = [i for i, table in enumerate(tables) if table is parameter]
                if at:
                    deltas[at[0]] -= rate * grad
                elif grad is not None:
                    parameter -= rate * grad
    for own, delta in zip(encoder.embeddings.tables(), deltas, strict=True):
        torch.testing.assert_close(own, delta, rtol=1e-4, atol=1e-7)
        assert delta.abs().max() > 1e-3
    for a, b in zip(objective.generator.parameters(), generator.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("sharing", SHARINGS)
def test_a_settled_encoder_answers_alone_as_it_did_in_training(sharing: str) -> None:
    encoder, objective = model(sharing)
    if sharing == "gradient_disentangled":
        assert not any(table.any() for table in encoder.embeddings.tables())
        randomise(encoder, 3)
    batch = batch_of()
    alone = Encoder(CONFIG)
    alone.load_state_dict(objective.settle(encoder.state_dict()))
    torch.testing.assert_close(alone(batch), encoder(batch, *objective.tables()), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("sharing", SHARINGS)
def test_going_on_from_a_settled_encoder_changes_nothing(sharing: str) -> None:
    encoder, objective = model(sharing)
    randomise(encoder, 3)
    before = {name: x.clone() for name, x in encoder.state_dict().items()}
    after = objective.unsettle(objective.settle(encoder.state_dict()))
    assert set(after) == set(before)
    for name, x in before.items():
        torch.testing.assert_close(after[name], x, rtol=0, atol=1e-7)
        assert torch.equal(encoder.state_dict()[name], x), "settling must not change the encoder itself"


def test_an_enhanced_mask_decoder_guesses_for_the_generator() -> None:
    for sharing in SHARINGS:
        encoder, objective = model(
            sharing, masking=MaskedTokens(enhanced_decoder=True, replace_mask=1.0, replace_random=0.0)
        )
        losses = objective(encoder, objective.prepare(batch_of(), 0))
        assert math.isfinite(float(combine(losses, {"mlm": 1, "rtd": 1}).detach()))


def test_the_blanks_follow_the_masking_settings() -> None:
    """ELECTRA: 85 % [MASK], 15 % unchanged, no random tokens; the large one hides 25 %."""
    _, objective = model(masking=replace(ReplacedTokens().masking, mask_rate=0.25))
    batch = batch_of(600, length=30)
    prepared = objective.prepare(batch, 0)
    where, value = prepared.labels["mlm"]
    shown = prepared.input_ids[where]
    ordinary = len(batch.input_ids) - 2 * 600
    assert abs(len(where) / ordinary - 0.25) < 0.01
    assert abs(float((shown == 4).float().mean()) - 0.85) < 0.025
    assert torch.equal(shown[shown != 4], value[shown != 4])
