"""Faults found in the tools people use today, and which of our tests keeps each of them out. The missing ones are here."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from fault_lists import listed, require_tests
from made_up import VOCABULARY, MadeUpSource, numbered_documents, vocabulary
from scipy import stats
from small_runs import ignore, losses, small_run

from unmask import road
from unmask.batch import PackedBatch
from unmask.config import (
    AdamW,
    BatchSize,
    EncoderConfig,
    Examples,
    Keeping,
    Linear,
    MaskedTokens,
    Pairs,
    ReplacedTokens,
    Steps,
)
from unmask.loader import Batches, Cursor, load
from unmask.nn.encoder import Encoder
from unmask.objectives.choose import Unit
from unmask.objectives.masked import MaskedTokenObjective
from unmask.objectives.replaced import ReplacedTokenObjective
from unmask.randomness import generator
from unmask.text.examples import cut
from unmask.text.train_tokenizer import TrainOptions, train
from unmask.text.words import WordSplitter

UNITS: tuple[Unit, ...] = get_args(Unit)
# A fault by its number in the project's list of facts and what must hold instead; below it, the tests that hold it.
FAULTS = """
1 micro-batches of uneven masks give the gradient of one batch (several processes: not built yet)
  objectives/test_contract.py::test_micro_batches_give_the_gradient_of_the_whole_batch
  objectives/test_losses.py::test_B095_micro_batches_give_the_gradient_of_one_batch
  train/test_loop.py::test_B095_B097_accumulation_changes_neither_the_gradient_nor_the_loss
2 no mean of means, to a millionth; what is reported does not depend on accumulation either
  objectives/test_contract.py::test_micro_batches_give_the_gradient_of_the_whole_batch
  objectives/test_losses.py::test_B097_the_loss_reported_does_not_depend_on_accumulation
  measure/test_heldout.py::test_evaluation_sums_before_it_divides
3 whole words are masked at the rate in every sentence, Chinese or English; marks are words of their own
  test_faults_elsewhere.py::test_every_sentence_is_masked_at_the_rate_and_no_words_are_glued
  objectives/test_masked_text.py::test_chinese_sentences_are_neither_masked_in_full_nor_left_alone
  text/test_words.py::test_B003_words_are_not_glued_to_marks_and_hanzi_stand_alone
  text/test_words.py::test_chinese_whole_words_mask_a_binomial_share_of_each_sentence
  objectives/test_masked.py::test_other_units_meet_their_fate_token_by_token
4 ids outside targets, separators, segments and unknown tokens stay
  objectives/test_contract.py::test_no_special_token_is_a_target_and_nothing_else_changes
  objectives/test_masked_text.py::test_no_special_token_is_ever_a_target_and_nothing_else_changes
  objectives/test_prepare.py::test_B087_masking_keeps_lengths_segments_and_every_other_field
5 no special token is a target in ten thousand sequences, single and pairs, whatever is chosen as one
  objectives/test_masked_text.py::test_no_special_token_is_ever_a_target_and_nothing_else_changes
  objectives/test_masked.py::test_B086_special_tokens_are_never_masked_whatever_their_ids
  objectives/test_contract.py::test_spans_are_words_and_the_frame_stays
6 every sentence is used, for any number of workers
  test_faults_elsewhere.py::test_every_sentence_reaches_training_for_any_number_of_workers
  test_loader.py::test_every_document_is_used_exactly_once_an_epoch
  text/test_build.py::test_B6_no_document_is_lost_for_any_number_of_workers
  text/test_examples.py::test_every_token_of_every_document_is_used_once
7 workers draw other masks, the learning rate ends where asked, id 0 can be a label, biases begin at 0, gradients are cut
  test_faults_elsewhere.py::test_workers_mask_the_same_text_each_in_another_way
  test_faults_elsewhere.py::test_the_learning_rate_of_a_run_ends_at_its_target_whatever_the_accumulation
  test_faults_elsewhere.py::test_no_step_follows_a_gradient_longer_than_asked_for
  train/test_plan.py::test_the_learning_rate_reaches_its_end_whatever_the_accumulation
  objectives/test_contract.py::test_id_0_can_be_a_label
  nn/test_initial.py::test_norms_begin_at_1_and_biases_at_0
8 every place is chosen equally often, the last 48 of 512 too
  test_faults_elsewhere.py::test_every_place_of_512_is_masked_equally_often_and_the_rate_is_exact
  objectives/test_choose.py::test_every_place_is_chosen_equally_often
9 random replacements are drawn from all ordinary ids, whatever the batch holds; there is no padding to mask
  test_faults_elsewhere.py::test_random_replacements_come_from_the_whole_vocabulary_whatever_the_batch_holds
  objectives/test_masked.py::test_B089_the_rate_and_80_10_10_are_exact
  test_batch.py::test_padding_and_unpadding_give_back_every_bit_and_zeros_between
  objectives/test_masked_text.py::test_no_special_token_is_ever_a_target_and_nothing_else_changes
10 what goes out computes what was trained, and no number stands for something else
  hub/test_export_faults.py::test_no_sentinel_survives_in_an_exported_theta
  hub/test_export_faults.py::test_a_theta_that_is_none_is_refused_by_name
  hub/test_round_trips.py::test_transformers_opens_our_folder_without_a_word_and_gives_our_numbers
11 packed with neighbours, a sequence has the states and the loss it has alone
  nn/test_isolation.py::test_B107_packed_equals_alone_in_every_layer
  nn/test_isolation.py::test_B107_B108_a_sequence_never_sees_its_neighbours
  objectives/test_losses.py::test_a_sequence_packed_with_others_has_the_loss_it_has_alone
12 the frame around a text is never masked
  objectives/test_masked_text.py::test_no_special_token_is_ever_a_target_and_nothing_else_changes
13 no target is drawn twice: the count is exact, with a generator too
  test_faults_elsewhere.py::test_every_place_of_512_is_masked_equally_often_and_the_rate_is_exact
  objectives/test_masked.py::test_B089_the_rate_and_80_10_10_are_exact
  objectives/test_choose.py::test_the_rate_is_exact_on_average_for_any_length
  objectives/test_replaced.py::test_the_blanks_follow_the_masking_settings
14 negatives of SOP are swapped neighbours, of short documents too; no cap thins the targets of long sequences
  test_faults_elsewhere.py::test_sop_negatives_of_a_document_of_one_chunk_are_its_own_halves_swapped
  test_faults_elsewhere.py::test_every_place_of_512_is_masked_equally_often_and_the_rate_is_exact
  text/test_examples.py::test_B023_label_0_means_b_follows_a
15 masks are those of (seed, epoch, example), in any process and any batch
  objectives/test_masked.py::test_R3_masks_depend_on_the_example_alone
  objectives/test_contract.py::test_corruption_depends_on_the_example_alone
  test_loader.py::test_any_number_of_workers_gives_the_same_batches
  test_loader.py::test_masks_and_order_agree_for_0_1_and_2_workers_over_ten_thousand_examples
  objectives/test_replaced.py::test_guesses_owe_nothing_to_the_global_random_state
16 on a CPU a run is evaluated, autocast is the CPU's, schedules count steps, norms and biases do not decay
  cli/test_commands.py::test_pretrain_leaves_a_run_a_model_and_a_report
  train/test_precision.py::test_B101_B102_a_bf16_run_stays_finite_and_its_loss_falls_as_in_fp32
  test_faults_elsewhere.py::test_the_learning_rate_of_a_run_ends_at_its_target_whatever_the_accumulation
  train/test_plan.py::test_norms_and_biases_are_not_decayed
17 stopped and resumed, a run is bit for bit the one that was not, position in the data and plan included
  train/test_loop.py::test_B038_resume_is_invisible
  test_loader.py::test_B029_B033_B034_B035_going_on_from_any_cursor_is_going_on
  test_road_phases.py::test_B038_killed_after_any_checkpoint_the_run_goes_on_in_its_phase_as_if_nothing_had_happened
  train/test_crash_run.py::test_R2_killed_at_twenty_random_moments_and_resumed_the_weights_are_those_of_an_undisturbed_run
18 a DeBERTa from scratch is one
  test_presets.py::test_B18_a_deberta_from_scratch_attends_to_relative_places
  test_presets.py::test_B18_the_defaults_of_transformers_would_not
  hub/test_deberta.py::test_transformers_defaults_which_make_no_deberta_are_refused_with_advice
19 places of a packed RoBERTa begin at 2 in each document; the first token can be a target; no kernel is required
  hub/test_export_faults.py::test_places_of_a_packed_roberta_start_behind_the_padding_id_in_each_document
  test_faults_elsewhere.py::test_every_place_of_512_is_masked_equally_often_and_the_rate_is_exact
  nn/test_attend.py::test_the_fast_attention_is_the_plain_one_forward_and_backward
20 no token changes outside the targets, with random replacements before a generator too
  test_faults_elsewhere.py::test_random_tokens_before_a_generator_stay_inside_the_targets
  objectives/test_contract.py::test_a_generator_fills_the_blanks_and_nothing_else
  objectives/test_masked.py::test_only_targets_change_and_no_special_token_is_one
21 a folder says both dropouts; what transformers can't keep apart is 0 in training
  hub/test_export_faults.py::test_modernberts_two_dropouts_are_stored_apart
  hub/test_export_faults.py::test_a_folder_holds_the_published_dropout_and_not_that_of_the_run
  hub/test_export_faults.py::test_a_loaded_model_in_training_without_dropout_is_the_trained_one
"""


# --- the list ------------------------------------------------------------------------------------------------------------
TESTS_OF = listed(FAULTS)


@pytest.mark.parametrize("fault", TESTS_OF)
def test_every_fault_has_tests_that_are_there(fault: str) -> None:
    require_tests(TESTS_OF[fault])


def test_every_fault_of_the_list_is_named(shared: Path) -> None:
    section = (shared / "FACTS.md").read_text(encoding="utf-8").split("## Section B")[1].split("## Section C")[0]
    numbers = [line.split("|")[1].strip() for line in section.splitlines() if line[:2].strip("|").isdigit()]
    assert numbers == list(TESTS_OF)


# --- masking -------------------------------------------------------------------------------------------------------------
def mlm(goal: MaskedTokens, size: int = 64) -> MaskedTokenObjective:
    config = EncoderConfig(vocab_size=size, hidden_size=8, num_attention_heads=2, intermediate_size=8)
    return MaskedTokenObjective(config, goal, vocabulary(size))


def framed(rows: list[list[int]], words: list[list[bool]]) -> PackedBatch:
    flags = torch.tensor([flag for row in words for flag in [True, *row, True]])
    batch = PackedBatch.pack([[2, *row, 3] for row in rows])
    return batch.with_(examples=torch.arange(len(rows)), word_starts=flags)


def masked_grid(batch: PackedBatch, after: PackedBatch) -> np.ndarray:
    """[sequences, tokens between the frame] bool, for sequences of one length."""
    chosen = torch.zeros(batch.num_tokens, dtype=torch.bool).index_fill(0, after.labels["mlm"].where, True)
    return chosen.view(batch.num_sequences, -1)[:, 1:-1].numpy()


SENTENCES = {  # words between spaces
    "en": [
        "She doesn ' t think it ' s late , and they weren ' t told .",
        "Well , it isn ' t what we ' d hoped for , is it ?",
    ],
    "zh": ["他 昨天 在 图书馆 看 了 三本 关于 中国 历史 的 书 ， 今天 又 去 了 。"],
}


@pytest.mark.parametrize("language", SENTENCES)
def test_every_sentence_is_masked_at_the_rate_and_no_words_are_glued(language: str) -> None:
    """2,000 draws of each. Where a sentence counts as one word, 85 % of them mask nothing; independent words leave a sentence
    of W words alone in 0.85^W. Where marks are glued to words ("doesn't", "well ,"), neighbours meet the same fate."""
    texts = [s.replace(" ", "") if language == "zh" else s.replace(" ' ", "'") for s in SENTENCES[language]]
    tokenizer, _ = train(texts, TrainOptions(vocab_size=400, min_frequency=1))
    for sentence, text, encoded in zip(
        SENTENCES[language], texts, tokenizer.encode(texts, WordSplitter("jieba")), strict=True
    ):
        before = framed([[9] * len(encoded.ids)] * 2000, [encoded.word_starts.tolist()] * 2000)
        chosen = masked_grid(before, mlm(MaskedTokens(unit="word")).prepare(before, 1))
        counts, size = chosen.sum(1), len(encoded.ids)
        words = chosen[:, first_tokens(sentence.split(), text, encoded.offsets)]
        assert abs(counts.mean() / size - 0.15) < 4 * counts.std() / size / 2000**0.5 and counts.max() < size / 2
        alone = 0.85 ** words.shape[1]
        assert (counts == 0).mean() < alone + 4 * (alone / 2000) ** 0.5
        assert (words[:, 1:] != words[:, :-1]).mean(0).min() > 0.12  # 0.255 where they are independent


def first_tokens(words: list[str], text: str, offsets: np.ndarray) -> list[int]:
    """The token in which each word of the text begins."""
    places = np.array([0, *np.cumsum([len(word) for word in words])[:-1]])  # without spaces
    ends = np.array([len(text[:end].replace(" ", "")) for _, end in offsets])
    return np.searchsorted(ends, places, side="right").tolist()


@pytest.mark.parametrize("unit", UNITS)
def test_every_place_of_512_is_masked_equally_often_and_the_rate_is_exact(unit: Unit) -> None:
    """Elsewhere the last 48 were never masked, 20 targets were the most, or targets drawn twice were fewer than asked for."""
    count, length = 1500, 510
    before = framed([[9] * length] * count, [[True] * length] * count)
    chosen = masked_grid(before, mlm(MaskedTokens(unit=unit)).prepare(before, 0))
    assert set(chosen.sum(1)) == {76, 77} and abs(chosen.mean() - 0.15) < 1e-3
    blocks = chosen.reshape(count, 17, 30).sum(2)
    apart = blocks.mean(0) - blocks.mean()
    assert (np.abs(apart) < 4.5 * blocks.std(0) / count**0.5).all(), apart
    for part in (chosen[:, :1], chosen[:, -1:], chosen[:, -48:]):
        share = part.mean(1)
        assert abs(share.mean() - 0.15) < 4.5 * share.std() / count**0.5


def test_random_replacements_come_from_the_whole_vocabulary_whatever_the_batch_holds() -> None:
    """Elsewhere from 0 up to the highest id of the batch. Here the batch holds three words, and all of 995 are drawn."""
    rows = [[5, 6, 7] * 30] * 700
    before = framed(rows, [[True] * 90] * 700)
    after = mlm(MaskedTokens(replace_mask=0.0, replace_random=1.0, mask_rate=0.5), 1000).prepare(before, 0)
    counts = np.bincount(after.input_ids[after.labels["mlm"].where].numpy(), minlength=1000)
    assert not counts[:5].any() and stats.chisquare(counts[5:]).pvalue > 1e-4


@pytest.mark.parametrize("share", [0.15, 1.0])
def test_random_tokens_before_a_generator_stay_inside_the_targets(share: float) -> None:
    """ELECTRA shows none; who asks for some gets them at targets only, before the generator's guesses and after."""
    config = EncoderConfig(vocab_size=64, hidden_size=16, num_attention_heads=2, intermediate_size=32)
    masking = MaskedTokens(replace_mask=1 - share, replace_random=share)
    objective = ReplacedTokenObjective(config, ReplacedTokens(masking=masking, sharing="tied"), VOCABULARY)
    before = framed([[5 + (i + j) % 50 for j in range(60)] for i in range(40)], [[True] * 60] * 40)
    prepared = objective.prepare(before, 3)
    filled, _ = objective.begin(Encoder(config), prepared)
    targets = set(prepared.labels["mlm"].where.tolist())
    assert len(targets) == 360
    for shown in (prepared, filled):
        changed = torch.nonzero(shown.input_ids != before.input_ids).flatten().tolist()
        assert changed and set(changed) <= targets
    assert torch.equal(filled.labels["rtd"].value.bool(), filled.input_ids != before.input_ids)


# --- workers and examples ------------------------------------------------------------------------------------------------
def an_epoch(documents: list[list[list[int]]], how: Examples, workers: int, size: int = 64) -> list[PackedBatch]:
    """Masked, in batches of about 60 tokens."""
    prepare, ids = mlm(MaskedTokens(), size).prepare, vocabulary(size)
    batches = Batches(MadeUpSource(documents), how, ids, prepare, seed=3, tokens=60, pool_tokens=200)
    found = []
    for batch, cursor in load(batches, Cursor(), workers=workers):
        found.append(batch)
        if cursor.epoch:
            break
    return found


def text_of(batch: PackedBatch) -> list[int]:
    """Its tokens before they were masked."""
    return batch.input_ids.index_copy(0, *batch.labels["mlm"]).tolist()


FOUR_ON_TWO_CORES = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@FOUR_ON_TWO_CORES
@pytest.mark.parametrize("workers", [0, 1, 2, 4])
def test_every_sentence_reaches_training_for_any_number_of_workers(workers: int) -> None:
    """Elsewhere ten documents and four workers were 13 sentences of 20: each worker lost its last document."""
    documents = numbered_documents([[6, 9]] * 10)
    used = Counter(t for batch in an_epoch(documents, Pairs(max_length=32), workers, 200) for t in text_of(batch))
    assert all(any(used[token] for token in sentence) for document in documents for sentence in document)
    assert max(used[token] for document in documents for sentence in document for token in sentence) == 1


@FOUR_ON_TWO_CORES
@pytest.mark.parametrize("workers", [0, 4])
def test_workers_mask_the_same_text_each_in_another_way(workers: int) -> None:
    """Elsewhere all workers began with one seed. Here 64 documents are the same one, and their masks are not."""
    masks = set()
    for batch in an_epoch([[list(range(5, 25)), list(range(30, 50))]] * 64, Pairs(max_length=64), workers):
        places = batch.layout.position_ids[batch.labels["mlm"].where]
        rows = batch.layout.rows[batch.labels["mlm"].where]
        masks |= {tuple(places[rows == row].tolist()) for row in range(batch.num_sequences)}
    assert len(masks) >= 63


@pytest.mark.parametrize("sentences", [[7, 9], [4, 4, 4, 4], [12]])
def test_sop_negatives_of_a_document_of_one_chunk_are_its_own_halves_swapped(sentences: list[int]) -> None:
    """Elsewhere such a document got a second part from any other one."""
    documents = numbered_documents([sentences] * 400)
    home = {token: number for number, d in enumerate(documents) for s in d for token in s}
    how = Pairs(max_length=64, negatives="swapped", short_rate=0.0)
    pool = cut(MadeUpSource(documents).read(np.arange(400)), how, VOCABULARY, generator(0))
    assert len(pool) == 400 and set(pool.label) == {0, 1} and abs(pool.label.mean() - 0.5) < 0.1
    for first, second, label in zip(pool.first, pool.second, pool.label, strict=True):
        a, b = (pool.stream[slice(*part)].tolist() for part in (first, second))
        whole = b + a if label else a + b
        assert whole == [token for sentence in documents[home[a[0]]] for token in sentence]


# --- steps ---------------------------------------------------------------------------------------------------------------
def test_the_learning_rate_of_a_run_ends_at_its_target_whatever_the_accumulation(
    small_corpus: Path, tmp_path: Path
) -> None:
    """Elsewhere the schedule counted micro-batches. Ours goes by steps, and a step's rate is that of its middle."""
    schedule, rates = Linear(warmup=0.0, final=0.1), {}
    for accumulate in (1, 4):
        batch, until = BatchSize(tokens=128, accumulate=accumulate), Steps(steps=5)
        keeping, optimizer = Keeping(evaluations=1, evaluation_tokens=300), AdamW(learning_rate=1e-3)
        run = small_run(small_corpus, schedule=schedule, batch=batch, until=until, optimizer=optimizer, keeping=keeping)
        road.pretrain(run, tmp_path / str(accumulate), view=ignore)
        records = losses(tmp_path / str(accumulate))
        rates[accumulate] = [record["learning_rate"] for record in records if record["kind"] == "step"]
    assert rates[1] == rates[4] == pytest.approx([1e-3 * (1 - 0.18 * (step + 0.5)) for step in range(5)])


def test_no_step_follows_a_gradient_longer_than_asked_for(
    small_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    norms, step = [], torch.optim.AdamW.step

    def watched(self: torch.optim.AdamW, *given: object) -> object:
        gradients = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
        norms.append(float(torch.stack([g.norm() for g in gradients]).norm()))
        return step(self, *given)

    monkeypatch.setattr(torch.optim.AdamW, "step", watched)
    keeping, optimizer = Keeping(evaluations=1, evaluation_tokens=300), AdamW(max_grad_norm=0.01)
    run = small_run(small_corpus, until=Steps(steps=3), optimizer=optimizer, keeping=keeping)
    road.pretrain(run, tmp_path / "run", view=ignore)
    before = [record["grad_norm"] for record in losses(tmp_path / "run") if record["kind"] == "step"]
    assert min(before) > 0.05 and norms == pytest.approx([0.01] * 3, rel=1e-3)
