from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_runs import ignore, losses, result, small_run, stop_after, weights

from unmask import road
from unmask.config import AdamW, BatchSize, Keeping, Machine, Minutes, Steps, Tokens
from unmask.errors import UnmaskError


def test_B038_resume_is_invisible(small_corpus: Path, tmp_path: Path) -> None:
    """Stopped four times, once twice in a row: parameters, metrics and samples equal those of an undisturbed run, bit for bit."""
    run = small_run(small_corpus)
    road.pretrain(run, tmp_path / "whole", view=ignore)
    outcome = road.pretrain(run, tmp_path / "stopped", view=stop_after(3))
    assert not outcome.finished and outcome.step == 3 and outcome.exit_code == 143
    for step in (4, 8, 9):
        assert road.resume(tmp_path / "stopped", view=stop_after(step)).step == step
    assert road.resume(tmp_path / "stopped", view=ignore).finished
    assert weights(tmp_path / "stopped") == weights(tmp_path / "whole")
    assert losses(tmp_path / "stopped") == losses(tmp_path / "whole")


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGUSR1, 0)])
def test_B052_signals_save_and_leave(small_corpus: Path, tmp_path: Path, number: signal.Signals, code: int) -> None:
    outcome = road.pretrain(small_run(small_corpus), tmp_path / "run", view=stop_after(2, number))
    assert (outcome.step, outcome.finished, outcome.exit_code) == (2, False, code)
    assert result(tmp_path / "run")["status"] == "stopped"
    assert (tmp_path / "run" / "steps" / "0000000002" / "manifest.json").exists()


def test_the_number_of_workers_changes_no_bit(small_corpus: Path, tmp_path: Path) -> None:
    for workers in (0, 2):
        road.pretrain(
            small_run(small_corpus, machine=Machine(threads=1, workers=workers)), tmp_path / str(workers), view=ignore
        )
    assert weights(tmp_path / "0") == weights(tmp_path / "2")


def test_B095_B097_accumulation_changes_neither_the_gradient_nor_the_loss(small_corpus: Path, tmp_path: Path) -> None:
    """Eight equal batches as one optimizer step or as micro-batches of it: first gradient norm and loss agree."""
    for accumulate in (1, 2, 8):
        run = small_run(
            small_corpus, dropout=0.0, batch=BatchSize(tokens=256, accumulate=accumulate), until=Steps(steps=1)
        )
        road.pretrain(run, tmp_path / str(accumulate), view=ignore)
    records = {a: [r for r in losses(tmp_path / str(a)) if r["kind"] == "step"][0] for a in (1, 2, 8)}
    assert records[8]["loss"] == pytest.approx(records[1]["loss"], rel=0.02)  # other text, the same scale
    assert records[8]["grad_norm"] < 1.5 * records[1]["grad_norm"]  # averaging can only make it smaller


def test_a_run_of_minutes_writes_its_plan_before_it_trains(small_corpus: Path, tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    run = small_run(small_corpus, until=Minutes(minutes=0.05))
    assert road.pretrain(run, tmp_path / "run", view=seen.append).finished
    kinds = [r["kind"] for r in seen]
    assert kinds.index("plan") < kinds.index("step")
    plan = json.loads((tmp_path / "run" / "run.json").read_text())["plan"]
    assert plan[0]["step"] == 0 and plan[-1]["total_steps"] == [r for r in seen if r["kind"] == "step"][-1]["step"]


def forget(folder: Path, after: int) -> None:
    """Takes the run back to before its later checkpoints, as a kill would."""
    for place in (folder / "steps").iterdir():
        if int(place.name) > after:
            shutil.rmtree(place)


def test_a_resumed_run_of_minutes_keeps_to_the_recorded_plan(
    small_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every decision made after the checkpoint a run falls back to is found in run.json again, and not measured again:
    the weights are those of the run that was not interrupted."""
    keeping = Keeping(evaluations=6, evaluation_tokens=300, keep_last=50)
    run = small_run(small_corpus, until=Minutes(minutes=0.12), keeping=keeping)
    road.pretrain(run, tmp_path / "whole", view=ignore)
    plan = json.loads((tmp_path / "whole" / "run.json").read_text())["plan"]
    assert len(plan) >= 4, "the run must have planned anew for this to prove anything"
    for back_to in (plan[1]["step"], 0):
        shutil.copytree(tmp_path / "whole", tmp_path / f"back{back_to}")
        forget(tmp_path / f"back{back_to}", after=back_to)
        monkeypatch.setattr("unmask.train.loop.steps_left", lambda *_: pytest.fail("measured again"))
        road.resume(tmp_path / f"back{back_to}", view=ignore)
        assert weights(tmp_path / f"back{back_to}") == weights(tmp_path / "whole")
        assert losses(tmp_path / f"back{back_to}") == losses(tmp_path / "whole")


def test_a_run_over_tokens_ends_after_them(small_corpus: Path, tmp_path: Path) -> None:
    outcome = road.pretrain(small_run(small_corpus, until=Tokens(tokens=3000)), tmp_path / "run", view=ignore)
    assert outcome.finished and 3000 <= outcome.tokens < 3000 + 2 * 400


def test_another_number_of_threads_is_said(small_corpus: Path, tmp_path: Path) -> None:
    road.pretrain(small_run(small_corpus), tmp_path / "run", view=stop_after(2))
    path = tmp_path / "run" / "run.json"
    data = json.loads(path.read_text())
    data["run"]["machine"]["threads"] = 2
    path.write_text(json.dumps(data))
    said: list[dict[str, Any]] = []
    road.resume(tmp_path / "run", view=said.append)
    assert any("1 threads" in r.get("message", "") and "not bit-identical" in r["message"] for r in said)


def test_continued_pre_training_starts_from_the_models_weights(small_corpus: Path, tmp_path: Path) -> None:
    road.pretrain(small_run(small_corpus), tmp_path / "first", view=ignore)
    run = road.fit_to_corpus(
        replace(
            small_run(small_corpus), start_from=str(tmp_path / "first" / "model"), optimizer=AdamW(learning_rate=1e-9)
        )
    )
    road.pretrain(run, tmp_path / "second", view=ignore)
    before, after = result(tmp_path / "first")["last"], result(tmp_path / "second")["first"]
    assert before["losses"] == after["losses"]


def test_export_gives_the_model_of_a_checkpoint(small_corpus: Path, tmp_path: Path) -> None:
    road.pretrain(small_run(small_corpus), tmp_path / "run", view=ignore)
    assert road.export(tmp_path / "run", tmp_path / "again") == 12
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (
        tmp_path / "run" / "model" / "model.safetensors"
    ).read_bytes()
    with pytest.raises(UnmaskError, match="no checkpoint '7'"):
        road.export(tmp_path / "run", tmp_path / "other", "7")


@pytest.mark.slow
def test_pre_training_goes_on_from_a_published_encoder(minilm: Path, tmp_path: Path) -> None:
    """A real BERT of six layers that has no pre-training heads: its encoder is taken, what begins anew is named."""
    from made_up import english_documents

    from unmask.hub.files import load_model
    from unmask.text.build import BuildOptions, build_corpus
    from unmask.text.documents import ReadOptions
    from unmask.text.tokenizer import Tokenizer

    (tmp_path / "text.txt").write_text("\n".join(english_documents(60)), encoding="utf-8")
    options = BuildOptions(read=ReadOptions(separator="line"), heldout_share=0.2, duplicates="keep")
    build_corpus([str(tmp_path / "text.txt")], tmp_path / "corpus", Tokenizer.load(minilm), options, workers=1)
    said: list[dict[str, Any]] = []
    run = small_run(tmp_path / "corpus", start_from=str(minilm), until=Steps(steps=2), batch=BatchSize(tokens=256))
    road.pretrain(run, tmp_path / "run", view=said.append)
    messages = " ".join(r["message"] for r in said if r["kind"] == "message")
    assert "mlm.transform.dense.weight" in messages and "begins anew" in messages
    assert load_model(tmp_path / "run" / "model").config.num_hidden_layers == 6


def test_frequencies_known_from_the_start_save_the_first_steps(small_corpus: Path, tmp_path: Path) -> None:
    from unmask.config import MaskedTokens

    run = small_run(small_corpus, objectives=(MaskedTokens(frequency_bias=True),), until=Steps(steps=1))
    road.pretrain(run, tmp_path / "run", view=ignore)
    found = result(tmp_path / "run")
    assert abs(found["first"]["losses"]["mlm"] - found["unigram_entropy"]) < 0.3


def test_a_run_no_longer_needs_the_model_it_started_from(small_corpus: Path, tmp_path: Path) -> None:
    road.pretrain(small_run(small_corpus, until=Steps(steps=2)), tmp_path / "first", view=ignore)
    run = small_run(small_corpus, start_from=str(tmp_path / "first" / "model"))
    road.pretrain(run, tmp_path / "second", view=stop_after(5))
    shutil.rmtree(tmp_path / "first")
    assert road.resume(tmp_path / "second", view=ignore).finished
    assert road.export(tmp_path / "second", tmp_path / "out") == 12


@pytest.mark.slow
@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_B052_a_signal_to_the_whole_group_saves_with_workers(
    small_corpus: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """As batch systems and service managers stop a job: every process of it gets the signal."""
    script = (
        "import sys; from pathlib import Path; from unmask import road; from unmask.config import Machine, Steps;"
        "from small_runs import small_run;"
        "run = small_run(Path(sys.argv[1]), until=Steps(steps=100000), machine=Machine(threads=1, workers=2));"
        "o = road.pretrain(run, Path(sys.argv[2]), view=lambda r: print(r['kind'], flush=True)); sys.exit(o.exit_code)"
    )
    paths = os.pathsep.join(p for p in sys.path if p)
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(small_corpus), str(tmp_path / "run")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    assert child.stdout is not None
    while child.stdout.readline().strip() != "step":
        assert child.poll() is None
    time.sleep(0.5)
    os.killpg(child.pid, number)
    _, said = child.communicate(timeout=60)
    assert child.returncode == code, said
    assert list((tmp_path / "run" / "steps").iterdir())


def test_a_short_run_does_not_spend_its_minutes_on_evaluations(
    small_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evaluations that would take more than a fifth of the time are left out, and the plan says how many remain."""
    plain = road.run.evaluate

    def slow(*parts: Any) -> dict[str, Any]:
        time.sleep(0.2)
        return plain(*parts)

    monkeypatch.setattr(road.run, "evaluate", slow)
    keeping = Keeping(evaluations=100, evaluation_tokens=300)
    outcome = road.pretrain(
        small_run(small_corpus, until=Minutes(minutes=0.1), keeping=keeping), tmp_path / "run", view=ignore
    )
    plan = json.loads((tmp_path / "run" / "run.json").read_text())["plan"]
    assert 1 <= plan[0]["evaluations"] <= 6 and outcome.step > 20
    assert sum(r["kind"] == "evaluation" for r in losses(tmp_path / "run")) == plan[0]["evaluations"] + 1
