"""Runs of several phases: what may change between them, and that a kill anywhere leaves no trace."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from small_runs import ignore, losses, result, small_run, stop_after, weights

from unmask import recipes, road
from unmask.config import (
    AdamW,
    BatchSize,
    EncoderConfig,
    FullSentences,
    Keeping,
    Linear,
    MaskedTokens,
    Minutes,
    Phase,
    ReplacedTokens,
    Rope,
    RunConfig,
    Steps,
    Tokens,
    WarmupStableDecay,
)
from unmask.errors import UnmaskError
from unmask.loader import Cursor
from unmask.objectives.masked import MaskedTokenObjective
from unmask.train.checkpoint import Checkpoints
from unmask.train.optimise import learning_rate_factor
from unmask.train.state import Border, State

TINY = EncoderConfig(
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    type_vocab_size=0,
    positions=Rope(),
    max_position_embeddings=64,
)
LONGER = Phase(
    until=Steps(steps=5),
    changes=(
        "encoder.max_position_embeddings=128",
        "examples.max_length=128",
        "encoder.positions.theta=160000",
        "objectives.mlm.mask_rate=0.15",
        "optimizer.learning_rate=3e-4",
        "schedule=wsd",
        "batch.tokens=300",
    ),
)
SHORT = Phase(until=Tokens(tokens=1500), changes=("optimizer.learning_rate=1e-4", "keeping.evaluations=1"))


def phased(corpus: Path, *phases: Phase, **changes: Any) -> RunConfig:
    """Six steps of MLM at 30 %, dropout on, then the phases."""
    settings: dict[str, Any] = {
        "encoder": TINY,
        "examples": FullSentences(max_length=64),
        "objectives": (MaskedTokens(mask_rate=0.3),),
        "until": Steps(steps=6),
        "keeping": Keeping(evaluations=2, evaluation_tokens=300, keep_last=50),
        "phases": phases,
    }
    return small_run(corpus, **(settings | changes))


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


# --- what may change -------------------------------------------------------------------------------------------------------
def test_each_phase_changes_the_settings_of_the_one_before(small_corpus: Path) -> None:
    first, second, third = road.phases_of(phased(small_corpus, LONGER, SHORT))
    assert first.examples.max_length == 64 and first.schedule == Linear(warmup=0.05) and not first.phases
    assert second.examples.max_length == 128 and second.encoder.positions == Rope(theta=160_000.0)
    assert second.until == Steps(steps=5) and isinstance(second.schedule, WarmupStableDecay)
    assert third.encoder == second.encoder and third.until == Tokens(tokens=1500)
    assert third.optimizer == replace(first.optimizer, learning_rate=1e-4)


@pytest.mark.parametrize(
    "change, named",
    [
        ("corpus=elsewhere", "corpus can't change"),
        ("seed=1", "seed can't change"),
        ("machine.threads=2", "machine.threads can't change"),
        ("phases=[]", "phases can't change"),
        ("until.steps=3", "until.steps can't change"),
        ("encoder.hidden_size=64", "encoder.hidden_size can't change"),
        ("encoder.num_attention_heads=4", "encoder.num_attention_heads can't change"),
        ("encoder.positions.kind=absolute", "embeddings.positions.weight"),
        ("objectives.mlm.enhanced_decoder=true", "head.positions.weight"),
        ('objectives=[{kind="mlm"}, {kind="sbo"}]', 'needs an mlm objective with unit "span"'),
        ("examples.max_length=1024", "exceeds encoder.max_position_embeddings"),
        ("examples.max_lenth=32", "unknown setting examples.max_lenth"),
        ("objectives.mlm.final_mask_rate=0.1", None),
    ],
)
def test_what_a_phase_must_not_change_is_refused_before_training(
    small_corpus: Path, change: str, named: str | None
) -> None:
    """By the name of the phase and of the setting."""

    def build() -> RunConfig:
        return phased(small_corpus, SHORT, Phase(until=Steps(steps=1), changes=(change,)))

    if named is None:
        build()
        return
    with pytest.raises(UnmaskError) as caught:
        build()
    assert named in caught.value.what and "phase 3" in caught.value.where and change in caught.value.where


def test_a_table_of_places_has_as_many_rows_in_every_phase(small_corpus: Path) -> None:
    encoder = EncoderConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    more = Phase(until=Steps(steps=1), changes=("encoder.max_position_embeddings=1024",))
    with pytest.raises(UnmaskError, match="embeddings.positions.weight") as caught:
        phased(small_corpus, more, encoder=encoder)
    assert "phase 2: encoder.max_position_embeddings=1024" in caught.value.where


@pytest.mark.parametrize(
    "goal",
    [MaskedTokens(mask_rate=0.3, final_mask_rate=0.1), ReplacedTokens(masking=MaskedTokens(final_mask_rate=0.1))],
)
def test_a_mask_rate_that_moves_over_the_run_needs_to_know_how_long_it_is(small_corpus: Path, goal: Any) -> None:
    with pytest.raises(UnmaskError, match="final_mask_rate"):
        phased(small_corpus, objectives=(goal,), until=Minutes(minutes=1))


def test_the_published_recipe_of_ModernBERT_is_three_phases() -> None:
    """Warner et al. 2024, section 2.2: 1,024 tokens, then 8,192 with a larger theta, then the decay."""
    parts = road.phases_of(recipes.recipe("modernbert_long"))
    assert [part.examples.max_length for part in parts] == [1024, 8192, 8192]
    assert [part.encoder.positions.theta for part in parts] == [10_000.0, 160_000.0, 160_000.0]  # type: ignore[union-attr]
    assert learning_rate_factor(parts[1].schedule, 0.5) == 1.0 and learning_rate_factor(parts[2].schedule, 1.0) < 0.01


# --- what goes on and what begins anew ------------------------------------------------------------------------------------
def test_a_phase_goes_on_with_an_epoch_not_begun_yet() -> None:
    state = State(7, 900, 3.0, Cursor(2, 0, 5, 14), {"mlm": [1.0, 2]}, [0.1, 1])
    after = state.next_phase()
    assert after == State(7, 900, 3.0, Cursor(3, 0, 0, 0), began=Border(1, 7, 900, 3.0))
    assert replace(state, cursor=Cursor(2, 0, 0, 14)).next_phase().cursor == Cursor(2, 0, 0, 0)


def test_steps_tokens_and_data_go_on_and_schedule_and_evaluations_begin_anew(
    small_corpus: Path, tmp_path: Path
) -> None:
    run = phased(small_corpus, LONGER, SHORT)
    outcome = road.pretrain(run, tmp_path / "run", view=ignore)
    found = records(tmp_path / "run")
    steps = [r for r in found if r["kind"] == "step"]
    assert outcome.finished and [r["step"] for r in steps] == list(range(1, outcome.step + 1)) and outcome.step > 11
    assert all(a["tokens"] < b["tokens"] for a, b in zip(steps, steps[1:], strict=False))
    assert [(r["phase"], r["step"]) for r in found if r["kind"] == "phase"] == [(0, 0), (1, 6), (2, 11)]
    evaluations = [r["step"] for r in found if r["kind"] == "evaluation"]
    assert evaluations == [0, 3, 6, 6, 8, 11, 11, outcome.step] or evaluations == [0, 3, 6, 6, 9, 11, 11, outcome.step]
    rates = [r["learning_rate"] for r in steps]
    assert rates[5] < 0.2 * max(rates[:6]) and rates[7] == pytest.approx(3e-4) and max(rates[11:]) <= 1e-4
    assert steps[-1]["total_steps"] == outcome.step and steps[0]["total_steps"] == 6 + 5 + 1500 // 600


def test_optimizer_moments_go_on_over_the_border(small_corpus: Path, tmp_path: Path) -> None:
    road.pretrain(phased(small_corpus, LONGER), tmp_path / "run", view=ignore)
    last = load_file(tmp_path / "run" / "steps" / "0000000011" / "optimizer.safetensors")
    assert all(float(value) == 11 for name, value in last.items() if name.startswith("step/"))
    state = json.loads((tmp_path / "run" / "steps" / "0000000011" / "state.json").read_text())
    assert state["began"]["phase"] == 1 and state["began"]["step"] == 6 and state["cursor"]["epoch"] == 1


def test_the_exported_model_is_that_of_the_last_phase_and_of_a_checkpoint_that_of_its_own(
    small_corpus: Path, tmp_path: Path
) -> None:
    from unmask.hub.files import load_model

    road.pretrain(phased(small_corpus, LONGER), tmp_path / "run", view=ignore)
    config = load_model(tmp_path / "run" / "model").config
    assert config.positions == Rope(theta=160_000.0) and config.max_position_embeddings == 128
    road.export(tmp_path / "run", tmp_path / "early", "3")
    assert load_model(tmp_path / "early").config.positions == Rope()
    rows = Checkpoints(tmp_path / "run" / "steps").list()
    assert all((row["loss"] is None) == (row["step"] <= 6) for row in rows), (
        "phases can't be compared: the last has the best"
    )


def test_a_moving_mask_rate_goes_its_whole_way_in_each_phase(
    small_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The share of hidden tokens in the first and the last batch of each phase; held-out text keeps the first rate."""
    rates: list[float] = []
    plain = MaskedTokenObjective.loss

    def watched(self: MaskedTokenObjective, encoder: Any, layers: Any, batch: Any) -> Any:
        rates.append(len(batch.labels["mlm"].where) / batch.num_tokens)
        return plain(self, encoder, layers, batch)

    monkeypatch.setattr(MaskedTokenObjective, "loss", watched)
    again = Phase(until=Tokens(tokens=3500))
    moving = MaskedTokens(mask_rate=0.5, final_mask_rate=0.1)
    batch, keeping = BatchSize(tokens=1000), Keeping(evaluations=1, evaluation_tokens=500)
    run = phased(small_corpus, again, objectives=(moving,), batch=batch, keeping=keeping, until=Steps(steps=4))
    assert road.pretrain(run, tmp_path / "run", view=ignore).step == 8
    held_out, steps = [rates[i] for i in (0, 5, 6, 11)], [*rates[1:5], *rates[7:11]]
    assert held_out == pytest.approx([0.5] * 4, abs=0.06)
    assert steps == pytest.approx([0.5, 0.4, 0.3, 0.2] * 2, abs=0.04)


# --- kills -----------------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def whole(small_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("phases") / "whole"
    road.pretrain(often(small_corpus), folder, view=ignore)
    return folder


def often(corpus: Path) -> RunConfig:
    """Three phases with a checkpoint after every step of the first two."""
    keeping = Keeping(evaluations=6, evaluation_tokens=300, keep_last=50)
    return phased(corpus, LONGER, SHORT, keeping=keeping)


def same(one: Path, other: Path) -> None:
    assert weights(one) == weights(other)
    assert losses(one) == losses(other)
    assert [r for r in records(one) if r["kind"] == "phase"] == [r for r in records(other) if r["kind"] == "phase"]


@pytest.mark.parametrize("step", [0, 4, 5, 6, 7, 10, 11])
def test_B038_killed_after_any_checkpoint_the_run_goes_on_in_its_phase_as_if_nothing_had_happened(
    whole: Path, tmp_path: Path, step: int
) -> None:
    """At 6 and 11 exactly on a border, where the phase is over and the next one has not begun. Records are those of a run
    that had gone on to its end: a kill -9 leaves more of them than the checkpoint knows of."""
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    for place in (folder / "steps").iterdir():
        if int(place.name) > step:
            shutil.rmtree(place)
    shutil.rmtree(folder / "model")
    assert road.resume(folder, view=ignore).finished
    same(folder, whole)


@pytest.mark.parametrize("at", [3, 6, 8, 11])
def test_B052_a_run_asked_to_stop_at_any_step_stops_there_and_goes_on(
    small_corpus: Path, whole: Path, tmp_path: Path, at: int
) -> None:
    """On a border too: the next phase is not begun before it is asked for."""
    outcome = road.pretrain(often(small_corpus), tmp_path / "stopped", view=stop_after(at))
    assert (outcome.step, outcome.finished) == (at, False)
    assert result(tmp_path / "stopped")["status"] == "stopped"
    assert road.resume(tmp_path / "stopped", view=ignore).finished
    same(tmp_path / "stopped", whole)


@pytest.mark.slow
def test_phases_of_minutes_keep_to_their_recorded_plans(
    small_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    minutes = Phase(until=Minutes(minutes=0.02), changes=("optimizer.learning_rate=1e-4",))
    run = phased(small_corpus, minutes, until=Minutes(minutes=0.02))
    road.pretrain(run, tmp_path / "whole", view=ignore)
    plan = json.loads((tmp_path / "whole" / "run.json").read_text())["plan"]
    assert {leg["phase"] for leg in plan} == {0, 1}
    border = next(leg["step"] for leg in plan if leg["phase"] == 1)
    for keep in (0, border):
        folder = tmp_path / f"back{keep}"
        shutil.copytree(tmp_path / "whole", folder)
        for place in (folder / "steps").iterdir():
            if int(place.name) > keep:
                shutil.rmtree(place)
        monkeypatch.setattr("unmask.train.loop.steps_left", lambda *_: pytest.fail("measured again"))
        road.resume(folder, view=ignore)
        same(folder, tmp_path / "whole")


# --- context extension -----------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_contexts_are_extended_as_ModernBERT_extended_them(tmp_path: Path) -> None:
    """Its recipe (section 2.2), 1,024 to 8,192 places, at a thirty-second: 64 to 256, RoPE's theta raised, the mask rate
    halved, the rate constant and then decaying. On texts where a word follows from its neighbours, the loss on long
    sequences is after the second phase far below what it was before."""
    corpus = rings(tmp_path)
    extension = Phase(
        until=Steps(steps=60),
        changes=(
            "encoder.max_position_embeddings=256",
            "examples.max_length=256",
            "encoder.positions.theta=160000",
            "objectives.mlm.mask_rate=0.15",
            "schedule=wsd",
        ),
    )
    run = phased(
        corpus, extension,
        until=Steps(steps=80),
        optimizer=AdamW(learning_rate=1e-2, beta2=0.98),
        schedule=WarmupStableDecay(),
        batch=BatchSize(tokens=512),
        keeping=Keeping(evaluations=1, evaluation_tokens=3000),
        dropout=0.0,
    )  # fmt: skip
    road.pretrain(run, tmp_path / "run", view=ignore)
    found = result(tmp_path / "run")
    assert found["last"]["losses"]["mlm"] < found["first"]["losses"]["mlm"] - 1.0


def rings(folder: Path) -> Path:
    """Documents of 150 to 260 tokens that go round ten words in the same order, begun anywhere."""
    import numpy as np

    from unmask.text.build import BuildOptions, build_corpus
    from unmask.text.documents import ReadOptions
    from unmask.text.train_tokenizer import TrainOptions, train

    rng, words = np.random.default_rng(0), "ba de fi go ku la me ni po ru".split()
    lengths = [int(n) for n in rng.integers(150, 260, 200)]
    texts = [" ".join(words[(begin + i) % 10] for i in range(length)) for begin, length in enumerate(lengths)]
    (folder / "text.txt").write_text("\n".join(texts), encoding="utf-8")
    tokenizer, _ = train(texts, TrainOptions(vocab_size=60))
    options = BuildOptions(read=ReadOptions(separator="line"), heldout_share=0.1, duplicates="keep")
    build_corpus([str(folder / "text.txt")], folder / "corpus", tokenizer, options, workers=1)
    return folder / "corpus"
