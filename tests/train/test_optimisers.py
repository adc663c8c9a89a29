"""StableAdamW, Muon and AdamW: each equals an independent reference, resumes bit for bit, and refuses another's checkpoint."""

from __future__ import annotations

import json
import math
import os
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from small_models import VARIANTS, our_model, sequences
from small_runs import ignore, losses, small_run, stop_after, weights
from torch import Tensor, nn

from unmask import config, recipes, road, settings
from unmask.batch import Targets
from unmask.config import AdamW, Machine, Optimizer, Phase, RunConfig, StableAdamW, Steps
from unmask.errors import DamagedError, UnmaskError
from unmask.nn.decoder import Decoder
from unmask.nn.encoder import Encoder
from unmask.road.phases import phases_of
from unmask.train import step as step_module
from unmask.train.checkpoint import Checkpoints
from unmask.train.muon import Muon, orthogonal
from unmask.train.optimise import build_optimizer, hidden_matrices, moments, restore_moments
from unmask.train.plan import Plan
from unmask.train.step import Diverged, Stepper

PAIR = Targets(torch.arange(2), torch.tensor([0, 1]))
SHAPES = {"square": (8, 8), "tall": (24, 8), "wide": (8, 20), "bias": (8,), "one": (1,)}


def parameters(seed: int = 0, dtype: torch.dtype = torch.float32) -> dict[str, nn.Parameter]:
    draw = torch.Generator().manual_seed(seed)
    return {name: nn.Parameter(torch.randn(shape, generator=draw).to(dtype)) for name, shape in SHAPES.items()}


def gradients(step: int) -> dict[str, Tensor]:
    """Of every size, and in the third step fifty times as large as before: what StableAdamW is for."""
    draw = torch.Generator().manual_seed(100 + step)
    scale = {1: 1e-3, 2: 0.05}.get(step, 1e-3)
    return {name: scale * torch.randn(shape, generator=draw) for name, shape in SHAPES.items()}


def train(given: Optimizer, steps: int, matrices: dict[str, int] | None = None) -> dict[str, nn.Parameter]:
    mine = parameters()
    optimizer = build_optimizer(given, mine, matrices)
    for step in range(steps):
        for name, gradient in gradients(step).items():
            mine[name].grad = gradient.clone()
        optimizer.step()
    return mine


def close(mine: dict[str, nn.Parameter], other: dict[str, Tensor], tolerance: float = 1e-6) -> None:
    for name in mine:
        torch.testing.assert_close(mine[name].detach(), other[name].detach(), rtol=tolerance, atol=tolerance)


# --- references --------------------------------------------------------------------------------------------------------
def stable_adamw(settings: StableAdamW, steps: int) -> dict[str, Tensor]:
    """Algorithm 2 of Wortsman et al. 2023 to the letter, one tensor after another in double precision."""
    theta = {name: p.detach().double() for name, p in parameters().items()}
    v = {name: torch.zeros_like(p) for name, p in theta.items()}
    u = {name: torch.zeros_like(p) for name, p in theta.items()}
    for t in range(1, steps + 1):
        for name, small in gradients(t - 1).items():
            g = small.double()
            beta1 = settings.beta1 * (1 - settings.beta1 ** (t - 1)) / (1 - settings.beta1**t)
            beta2 = settings.beta2 * (1 - settings.beta2 ** (t - 1)) / (1 - settings.beta2**t)
            v[name] = beta1 * v[name] + (1 - beta1) * g
            u[name] = beta2 * u[name] + (1 - beta2) * g * g
            rms = float((g * g / u[name].clamp(min=settings.epsilon**2)).mean().sqrt())
            rate = settings.learning_rate / max(1.0, rms)
            decay = settings.weight_decay if g.dim() > 1 else 0.0
            theta[name] = theta[name] * (1 - rate * decay) - rate * v[name] / (u[name].sqrt() + settings.epsilon)
    return {name: p.float() for name, p in theta.items()}


@pytest.mark.parametrize("decay", [0.0, 0.3])
@pytest.mark.parametrize("beta2", [0.9, 0.999])
def test_stable_adamw_is_the_published_algorithm(decay: float, beta2: float) -> None:
    settings = StableAdamW(learning_rate=0.02, beta2=beta2, weight_decay=decay)
    close(train(settings, 6), stable_adamw(settings, 6))


def test_stable_adamw_steps_less_far_than_adamw_after_a_sudden_gradient_and_equally_far_before() -> None:
    rate, begin = 0.02, parameters()
    by = {kind: [train(kind(learning_rate=rate, beta2=0.999, weight_decay=0.0), steps) for steps in (1, 2, 3)]
          for kind in (AdamW, StableAdamW)}  # fmt: skip
    close(by[StableAdamW][0], by[AdamW][0])
    moved = {kind: [float((b["square"] - a["square"]).detach().norm()) for a, b in zip([begin, *runs], runs, strict=False)]
             for kind, runs in by.items()}  # fmt: skip
    assert (
        moved[StableAdamW][2] < 0.65 * moved[AdamW][2]
    )  # by √(mean of 1, 1 and 2,500 parts of 2,500): 1.73 times less


def test_adamw_is_torchs() -> None:
    settings, other = AdamW(learning_rate=0.01, weight_decay=0.2), parameters()
    groups = [{"params": [p for p in other.values() if (p.dim() > 1) == wide], "weight_decay": 0.2 * wide}
              for wide in (True, False)]  # fmt: skip
    theirs = torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.999), eps=1e-6, foreach=False)
    for step in range(4):
        for name, gradient in gradients(step).items():
            other[name].grad = gradient
        theirs.step()
    close(train(settings, 4), dict(other))


def torchs_muon(settings: config.Muon, steps: int) -> dict[str, Tensor]:
    other = parameters()
    hidden = [other[name] for name in ("square", "tall", "wide")]
    rate, decay, momentum = settings.learning_rate, settings.weight_decay, settings.momentum
    theirs = torch.optim.Muon(hidden, rate, decay, momentum, adjust_lr_fn="match_rms_adamw")
    rest = torch.optim.AdamW([other["bias"], other["one"]], lr=rate, eps=settings.epsilon, weight_decay=0.0)
    for step in range(steps):
        for name, gradient in gradients(step).items():
            other[name].grad = gradient
        theirs.step()
        rest.step()
    return dict(other)


def test_muon_is_torchs_muon_with_adamw_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's iteration works in bf16, so ours does too here; what remains is the order of additions, in steps of 1/256."""
    monkeypatch.setattr("unmask.train.muon.has_bf16", lambda _: True)
    settings = config.Muon(learning_rate=1e-3, weight_decay=0.1)
    close(train(settings, 4, {"square": 1, "tall": 1, "wide": 1}), torchs_muon(settings, 4), 2e-5)


def test_muons_fp32_iteration_is_the_same_polynomial_of_each_matrix_alone() -> None:
    """Singular values go through a·s + b·s³ + c·s⁵ five times; singular vectors stay."""
    x = torch.randn(3, 6, 10, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for given in (x, x.transpose(1, 2)):
        for one, out in zip(given, orthogonal(given, torch.float64), strict=True):
            left, s, right = torch.linalg.svd(one, full_matrices=False)
            s = s / one.norm()
            for _ in range(5):
                s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
            torch.testing.assert_close(out, left @ torch.diag(s) @ right, rtol=1e-9, atol=1e-9)
    assert orthogonal(torch.zeros(1, 3, 3)).abs().max() == 0  # no gradient, no step


def test_muon_takes_queries_keys_and_values_as_three_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unmask.train.muon.has_bf16", lambda _: False)
    settings = config.Muon(learning_rate=0.1, weight_decay=0.0)
    whole = train(settings, 1, {"tall": 3})["tall"] - parameters()["tall"]
    for part, gradient in zip(whole.split(8), gradients(0)["tall"].split(8), strict=True):
        expected = -0.1 * 0.2 * math.sqrt(8) * orthogonal(gradient[None])[0]
        torch.testing.assert_close(part.detach(), expected, rtol=1e-3, atol=1e-3)


# --- which parameters --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", VARIANTS)
def test_muon_gets_the_matrices_inside_the_blocks_and_nothing_else(name: str) -> None:
    encoder, objective = our_model(VARIANTS[name], ("mlm",) if name != "gpt2" else ("causal",))
    found = hidden_matrices(encoder=encoder, objective=objective)
    named = {f"encoder.{key}": p for key, p in encoder.named_parameters()}
    assert found.keys() == {key for key, p in named.items() if ".blocks." in key and p.dim() == 2 and "norm" not in key}
    for key, parts in found.items():
        assert parts == (3 if "qkv" in key else 2 if "feed_forward.up" in key and encoder.config.gated else 1)
        assert len(named[key]) % parts == 0


def test_a_decoders_look_at_its_encoder_holds_keys_and_values() -> None:
    found = hidden_matrices(decoder=Decoder(VARIANTS["t5"], 1))
    assert {key.removeprefix("decoder.blocks.0."): parts for key, parts in found.items()} == {
        "attention.qkv.weight": 3, "attention.out.weight": 1, "cross.query.weight": 1, "cross.key_value.weight": 2,
        "cross.out.weight": 1, "feed_forward.up.weight": 1, "feed_forward.down.weight": 1,
    }  # fmt: skip


def test_every_parameter_has_one_optimizer() -> None:
    encoder = Encoder(VARIANTS["bert"])
    named = {f"encoder.{key}": p for key, p in encoder.named_parameters()}
    optimizer = build_optimizer(config.Muon(), named, hidden_matrices(encoder=encoder))
    given = [p for group in optimizer.param_groups for p in group["params"]]
    assert sorted(map(id, given)) == sorted(map(id, named.values()))
    assert isinstance(optimizer, Muon)


# --- checkpoints -------------------------------------------------------------------------------------------------------
KINDS: list[Optimizer] = [
    AdamW(learning_rate=1e-3),
    StableAdamW(learning_rate=1e-3),
    config.Muon(learning_rate=1e-3),
]


@pytest.mark.parametrize("optimizer", KINDS, ids=lambda o: o.kind)
def test_resume_is_invisible_with_every_optimizer(small_corpus: Path, tmp_path: Path, optimizer: Optimizer) -> None:
    run = small_run(small_corpus, optimizer=optimizer, until=Steps(steps=6))
    road.pretrain(run, tmp_path / "whole", view=ignore)
    road.pretrain(run, tmp_path / "stopped", view=stop_after(3))
    assert road.resume(tmp_path / "stopped", view=ignore).finished
    assert weights(tmp_path / "stopped") == weights(tmp_path / "whole")
    assert losses(tmp_path / "stopped") == losses(tmp_path / "whole")


def test_a_checkpoint_of_another_optimizer_is_refused_in_words(small_corpus: Path, tmp_path: Path) -> None:
    run = small_run(small_corpus, until=Steps(steps=4))
    road.pretrain(run, tmp_path / "run", view=stop_after(2))
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    about["run"]["optimizer"] |= {"kind": "stable_adamw"}
    (tmp_path / "run" / "run.json").write_text(json.dumps(about))
    with pytest.raises(DamagedError, match="optimizer.kind is adamw, not stable_adamw"):
        road.resume(tmp_path / "run", view=ignore)


def test_the_settings_and_checkpoints_of_an_older_run_have_no_kind_and_mean_adamw(
    small_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, save = small_run(small_corpus, until=Steps(steps=4)), Checkpoints.save

    def as_before(self: Checkpoints, step: int, tensors: Any, state: dict[str, Any], **more: Any) -> None:
        save(self, step, tensors, {k: v for k, v in state.items() if k != "optimizer"}, **more)

    with monkeypatch.context() as older:
        older.setattr(Checkpoints, "save", as_before)
        road.pretrain(run, tmp_path / "run", view=stop_after(2))
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    del about["run"]["optimizer"]["kind"]
    (tmp_path / "run" / "run.json").write_text(json.dumps(about))
    assert road.resume(tmp_path / "run", view=ignore).finished


@pytest.mark.parametrize("optimizer", KINDS, ids=lambda o: o.kind)
def test_state_that_is_missing_or_unknown_is_named(optimizer: Optimizer) -> None:
    matrices = {"square": 1}
    mine, saved = parameters(), {}
    made = build_optimizer(optimizer, mine, matrices)
    for name, gradient in gradients(0).items():
        mine[name].grad = gradient
    made.step()
    saved = moments(made, mine)
    restore_moments(build_optimizer(optimizer, mine, matrices), mine, saved)
    for broken, words in (
        ({k: v for k, v in saved.items() if k != "exp_avg/bias"}, "no exp_avg of bias"),
        (saved | {"exp_avg/other": torch.zeros(1)}, "unknown tensors: exp_avg/other"),
    ):
        with pytest.raises(DamagedError, match=words):
            restore_moments(build_optimizer(optimizer, mine, matrices), mine, broken)


@pytest.mark.parametrize("change", ["optimizer=muon", "optimizer.kind = muon"])
def test_the_optimizer_may_not_change_between_phases(change: str) -> None:
    with pytest.raises(ValueError, match="goes on with the state of the one before"):
        Phase(until=Steps(steps=2), changes=(change,))


def test_nor_by_a_field_that_only_another_one_has() -> None:
    run = replace(recipes.bert(), until=Steps(steps=2))
    run = replace(run, phases=(Phase(until=Steps(steps=2), changes=("optimizer.momentum=0.9",)),))
    with pytest.raises(
        UnmaskError, match="optimizer.kind can't change between the phases of a run, from adamw to muon"
    ):
        phases_of(run)


# --- settings ----------------------------------------------------------------------------------------------------------
def test_another_optimizer_keeps_the_rate_when_only_its_kind_is_changed() -> None:
    run = settings.override(RunConfig, recipes.bert(), ["optimizer.learning_rate=7e-4", "optimizer.kind=muon"])
    assert run.optimizer == config.Muon(learning_rate=7e-4)
    assert settings.override(RunConfig, run, ["optimizer.momentum=0.9"]).optimizer.learning_rate == 7e-4
    assert settings.override(RunConfig, recipes.bert(), ["optimizer.momentum=0.9"]).optimizer == config.Muon(
        learning_rate=5e-4, momentum=0.9
    )
    assert settings.parse(RunConfig, settings.plain(run)) == run


def test_modernbert_and_ettin_have_their_own_optimizer() -> None:
    for name in ("modernbert", "modernbert_long", "ettin_long"):
        assert isinstance(recipes.recipe(name).optimizer, StableAdamW)


# --- on a GPU, acted on a CPU ------------------------------------------------------------------------------------------
def poison(monkeypatch: pytest.MonkeyPatch, broken: int, *, stop: bool = False) -> None:
    """A run that waits for no step, whose gradient is no number in step `broken`; `stop` ends it by a signal then."""
    plain, clip, steps = Stepper.__post_init__, nn.utils.clip_grad_norm_, 0

    def late(self: Stepper) -> None:
        plain(self)
        self.waits = False

    def poisoned(*given: object, **options: object) -> Tensor:
        nonlocal steps
        steps += 1
        if stop and steps == broken:
            os.kill(os.getpid(), signal.SIGTERM)
        return clip(*given, **options) * (float("nan") if steps == broken else 1.0)

    monkeypatch.setattr(Stepper, "__post_init__", late)
    monkeypatch.setattr(nn.utils, "clip_grad_norm_", poisoned)


def test_with_a_gradient_scaler_a_broken_loss_is_found_too(
    small_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fp16 on a GPU: the scaler takes no step for a gradient that is no number, but a loss that is none ends the run."""
    plain, added, steps = Stepper.__post_init__, step_module.combine, 0

    def scaled(self: Stepper) -> None:
        plain(self)
        self.waits, self.scaler = False, torch.amp.GradScaler("cpu")

    def broken(*given: Any) -> Tensor:
        nonlocal steps
        steps += 1
        return added(*given) * (float("nan") if steps == 4 else 1.0)

    monkeypatch.setattr(Stepper, "__post_init__", scaled)
    monkeypatch.setattr(step_module, "combine", broken)
    require_named_and_not_kept(tmp_path / "run", small_run(small_corpus), 2)  # two batches a step


def require_named_and_not_kept(folder: Path, run: RunConfig, broken: int) -> None:
    with pytest.raises(Diverged, match=f"in step {broken}; nothing of it was saved"):
        road.pretrain(run, folder, view=ignore)
    assert all(int(place.name) < broken for place in (folder / "steps").glob("0*"))


@pytest.mark.parametrize("broken", [1, 4])
def test_a_step_nobody_waited_for_is_found_before_anything_of_it_is_written(
    small_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: int
) -> None:
    """A GPU's steps are looked at late: the run still names the step, and its files know nothing of it."""
    poison(monkeypatch, broken)
    require_named_and_not_kept(tmp_path / "run", small_run(small_corpus), broken)
    assert [r["step"] for r in losses(tmp_path / "run") if r["kind"] == "step"] == list(range(1, broken))


@pytest.mark.parametrize("stop", [False, True])
def test_a_step_that_is_not_recorded_is_looked_at_before_the_next_one_and_before_a_checkpoint(
    small_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: bool
) -> None:
    """As in long runs, which record one step of many; the first mark is at step 4."""
    monkeypatch.setattr(Plan, "first_estimate", lambda self: 10**6)
    poison(monkeypatch, 2, stop=stop)
    require_named_and_not_kept(tmp_path / "run", small_run(small_corpus), 2)
    assert [r["kind"] for r in losses(tmp_path / "run") if r["kind"] == "step"] == []


def test_on_a_cpu_a_step_whose_gradient_is_no_number_does_not_move_the_weights() -> None:
    encoder, objective = our_model()
    batch = objective.prepare(sequences([5, 9]).with_(examples=torch.arange(2), labels={"pair": PAIR}), 0)
    journal: Any = SimpleNamespace(name_documents=lambda *batches: "")
    stepper = Stepper(RunConfig(machine=Machine(device="cpu")), encoder, objective, journal, "")
    before = {name: p.detach().clone() for name, p in stepper.parameters.items()}
    stepper.backward([batch], 1)
    assert encoder.blocks[0].attention.out.bias.grad is not None
    encoder.blocks[0].attention.out.bias.grad[0] = torch.inf
    with pytest.raises(Diverged, match="gradient is not finite in step 1; the step was not taken"):
        stepper.update([batch], 1, 1e-3)
    assert all(torch.equal(p, before[name]) for name, p in stepper.parameters.items())
