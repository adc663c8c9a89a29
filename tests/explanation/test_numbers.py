"""From logits to -log p: worked again here, from what the JSON holds."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from texts import ENGLISH, PAIRS, explained

from unmask import settings
from unmask.explanation import explain
from unmask.explanation.ask import ask
from unmask.hub.files import save_model
from unmask.road.model import build


@pytest.mark.parametrize(("preset", "objective"), PAIRS)
def test_the_worked_loss_follows_from_its_logits(preset: str, objective: str) -> None:
    data = json.loads(json.dumps(explained(preset, objective).as_dict()))
    for loss in data["losses"]:
        worked = loss["worked"]
        if worked is None:
            continue
        total = sum(math.exp(z) for z in worked["logits"])
        chances = [math.exp(z) / total for z in worked["logits"]]
        true = worked["true"]
        assert worked["log_sum_exp"] == pytest.approx(math.log(total), abs=1e-5)
        assert true["probability"] == pytest.approx(chances[true["id"]], rel=1e-4)
        assert worked["loss"] == pytest.approx(-math.log(chances[true["id"]]), abs=1e-5)
        assert [one["id"] for one in worked["likeliest"]] == sorted(range(len(chances)), key=lambda i: -chances[i])[:5]
        (target,) = (t for t in loss["targets"] if (t["sequence"], t["place"]) == (worked["sequence"], worked["place"]))
        assert (target["label"], target["loss"]) == (true["id"], worked["loss"])


@pytest.mark.parametrize(("preset", "objective"), PAIRS)
def test_a_loss_is_the_mean_over_its_targets_and_the_step_their_weighted_sum(preset: str, objective: str) -> None:
    found = explained(preset, objective)
    for loss in found.losses:
        costs = [target.loss for target in loss.targets]
        assert loss.mean == pytest.approx(sum(costs) / max(1, len(costs)), rel=1e-5)
    assert found.loss == pytest.approx(sum(loss.weight * loss.mean for loss in found.losses), rel=1e-5)
    assert all(
        loss.weight == (50 if loss.name == "rtd" else 1) for loss in found.losses if preset != "deberta_v3_xsmall"
    )


def test_a_yes_or_no_head_is_a_sigmoid() -> None:
    found = explain(ENGLISH, objective="rtd", seed=1)
    loss = next(loss for loss in found.losses if loss.name == "rtd")
    assert loss.worked and loss.worked.logits[0] == 0.0 and len(loss.targets) == len(found.sequences[0].ids)
    p = 1 / (1 + math.exp(-loss.worked.logits[1]))
    assert loss.worked.loss == pytest.approx(-math.log(p if loss.worked.true.id else 1 - p), abs=1e-6)
    assert loss.worked.true.token in ("original", "replaced")


def test_an_untrained_network_starts_near_chance() -> None:
    for objective in ("mlm", "nsp", "sop", "causal"):
        found = explain(" ".join([ENGLISH] * 4), objective=objective)
        for loss in found.losses:
            assert loss.chance == pytest.approx(
                math.log(2 if loss.name in ("nsp", "sop") else found.tokenizer.vocab_size)
            )
            assert loss.mean == pytest.approx(loss.chance, abs=0.25)


@pytest.mark.parametrize(("preset", "objective"), [("bert_tiny", "nsp"), ("electra_small", "rtd"), ("gpt2", "causal")])
def test_a_model_folder_gives_its_own_numbers(tmp_path: Path, preset: str, objective: str) -> None:
    """A folder of the small network itself: the same weights must give the same loss."""
    asked = ask([ENGLISH], objective, preset, None, None, 3)
    asked.tokenizer.save(tmp_path / "tokenizer")
    model = build(asked.small, asked.tokenizer.vocabulary())
    about = {"run": settings.plain(asked.small)}
    save_model(tmp_path / "model", model.encoder, model.objective, tokenizer_folder=tmp_path / "tokenizer", about=about)
    new, own = (
        explain(ENGLISH, objective=objective, preset=preset, seed=3),
        explain(ENGLISH, objective=objective, model=tmp_path / "model", seed=3),
    )
    assert own.trained and not new.trained
    assert own.loss == pytest.approx(new.loss, rel=1e-5)
    assert own.sequences == new.sequences
    assert own.sizes["H"] == 64 and own.parameters < new.parameters
    assert not any("begins anew" in note for note in own.notes)
