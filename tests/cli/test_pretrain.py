"""What `unmask pretrain` says before and after runs of other goals than BERT's, and of several phases."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from commands import TINY, Answer, Road, unmask

PHASED = """
examples = {kind = "full_sentences", max_length = 32}
objectives = [{kind = "mlm"}]
until = {steps = 3}

[encoder]
preset = "bert_tiny"
positions = "rope"
max_position_embeddings = 32

[[phases]]
until = {tokens = 700}
changes = ["encoder.max_position_embeddings=64", "examples.max_length=64", "encoder.positions.theta=160000"]
"""
ELECTRA = """
encoder = "bert_tiny"
examples = {kind = "full_sentences", max_length = 32}
objectives = [{kind = "rtd"}]
until = {steps = 2}
"""
GPT = """
examples = {kind = "blocks", max_length = 32, frame = false}
objectives = [{kind = "causal"}]
until = {steps = 2}

[encoder]
preset = "bert_tiny"
causal = true
"""


def run(road: Road, folder: Path, recipe: str, *words: object) -> Answer:
    (folder / "recipe.toml").write_text(recipe)
    return unmask("pretrain", folder / "recipe.toml", "-c", road.corpus, "-o", folder / "run", *TINY, *words)


def test_a_dry_run_says_of_each_phase_what_it_will_cost(road: Road, tmp_path: Path) -> None:
    answer = run(road, tmp_path, PHASED, "--dry-run")
    assert answer.code == 0, answer.err
    assert "What phase 1 of 2 will cost" in answer.out and "What phase 2 of 2 will cost" in answer.out
    steps, tokens = (re.findall(rf"\| {name} +\| +([\d,]+) \|", answer.out) for name in ("steps", "tokens"))
    assert steps == ["3", "2"] and tokens == ["768", "512"]


def test_a_phase_that_can_not_be_is_refused_before_the_run_begins(road: Road, tmp_path: Path) -> None:
    answer = run(road, tmp_path, PHASED.replace("positions.theta=160000", "hidden_size=64"))
    assert answer.code == 2 and "phase 2: encoder.hidden_size=64" in answer.err
    assert not (tmp_path / "run").exists()


def test_phases_are_announced_and_the_result_is_that_of_the_last(road: Road, tmp_path: Path) -> None:
    answer = run(road, tmp_path, PHASED)
    assert answer.code == 0, answer.err
    assert "phase 2 begins after step 3" in answer.out + answer.err
    assert "Result of the last phase" in answer.out and "MLM loss" in answer.out


def test_after_rtd_the_generator_is_what_fills_masks(road: Road, tmp_path: Path) -> None:
    answer = run(road, tmp_path, ELECTRA)
    assert answer.code == 0, answer.err
    assert "held-out RTD loss" in answer.out and "held-out generator's MLM accuracy" in answer.out
    generator = tmp_path / "run" / "model" / "generator"
    assert f"fill {generator}" in " ".join(answer.out.split())
    guessed = unmask("fill", generator, "the old [MASK] sees the cat.")
    assert guessed.code == 0 and "probability" in guessed.out


def test_a_network_that_transformers_has_no_class_for_says_so_at_the_end(road: Road, tmp_path: Path) -> None:
    answer = run(road, tmp_path, ELECTRA.replace('"bert_tiny"', '{preset = "bert_tiny", positions = "rope"}'))
    assert answer.code == 0, answer.err
    assert "loads with unmask alone" in " ".join(answer.out.split())


def test_a_causal_run_is_not_told_to_fill_masks(road: Road, tmp_path: Path) -> None:
    answer = run(road, tmp_path, GPT)
    assert answer.code == 0, answer.err
    assert "held-out causal loss" in answer.out and "held-out perplexity" in answer.out
    assert "the causal loss is" in answer.out and "Next:" not in answer.out


@pytest.mark.parametrize("options, refused", [(["--minutes", 1], True), (["--steps", 9], False)])
def test_a_moving_mask_rate_needs_a_known_length(
    road: Road, tmp_path: Path, options: list[object], refused: bool
) -> None:
    moving = ["--set", "objectives.mlm.final_mask_rate=0.1", "--dry-run"]
    recipe = 'encoder = "bert_tiny"\nexamples = "full_sentences"\nobjectives = [{kind = "mlm"}]\n'
    answer = run(road, tmp_path, recipe, *options, *moving)
    assert ("final_mask_rate needs to know" in answer.err) == refused and answer.code == 2 * refused
