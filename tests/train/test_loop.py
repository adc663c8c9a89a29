from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import ignore, losses, result, small_run, weights

from unmask import road
from unmask.config import AdamW, BatchSize, Keeping, Machine, Minutes, Steps, Tokens
from unmask.errors import CannotWriteError, DamagedError, UnmaskError
from unmask.objectives.masked import MaskedTokenObjective
from unmask.train.loop import Diverged


def stop_after(step: int, number: signal.Signals = signal.SIGTERM) -> Callable[[dict[str, Any]], None]:
    """Asks this process to stop when a step has been recorded."""

    def view(record: dict[str, Any]) -> None:
        if record["kind"] == "step" and record["step"] == step:
            os.kill(os.getpid(), number)

    return view


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


def test_R7_a_loss_that_is_not_a_number_stops_before_the_step_and_names_the_documents(
    small_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, calls = MaskedTokenObjective.logits, []

    def poisoned(self: MaskedTokenObjective, encoder: Any, hidden: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return plain(self, encoder, hidden) * (float("nan") if self.training and len(calls) > 30 else 1.0)

    monkeypatch.setattr(MaskedTokenObjective, "logits", poisoned)
    steps: list[int] = []
    with pytest.raises(Diverged) as caught:
        road.pretrain(
            small_run(small_corpus), tmp_path / "run", view=lambda r: r["kind"] == "step" and steps.append(r["step"])
        )
    assert f"in step {steps[-1] + 1}" in caught.value.what and "text.txt record" in caught.value.where
    assert caught.value.exit_code != 0 and result(tmp_path / "run")["status"] == "failed"
    monkeypatch.setattr(MaskedTokenObjective, "logits", plain)
    road.resume(tmp_path / "run", view=ignore)  # what was saved is sound
    road.pretrain(small_run(small_corpus), tmp_path / "whole", view=ignore)
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


def test_R7_a_broken_sequence_is_named_alone(
    small_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the documents whose hidden states are not numbers, out of a batch of many."""
    from unmask.nn.encoder import Encoder

    plain = Encoder.forward

    def poisoned(self: Encoder, batch: Any) -> torch.Tensor:
        hidden = plain(self, batch)
        if self.training or not torch.is_grad_enabled():
            hidden = hidden.clone()
            hidden[batch.layout.rows == 1] = float("nan") if self.training else 0.0
        return hidden

    monkeypatch.setattr(Encoder, "forward", poisoned)
    with pytest.raises(Diverged) as caught:
        road.pretrain(small_run(small_corpus), tmp_path / "run", view=ignore)
    assert caught.value.where.count("record") == 1


def test_a_gradient_that_is_not_finite_stops_before_the_step(
    small_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda *_: torch.tensor(float("inf")))
    with pytest.raises(Diverged, match="gradient is not finite in step 1"):
        road.pretrain(small_run(small_corpus), tmp_path / "run", view=ignore)


def test_two_runs_on_one_folder_the_second_is_refused(small_corpus: Path, tmp_path: Path) -> None:
    from unmask.train.lock import lock_run

    (tmp_path / "run").mkdir()
    with lock_run(tmp_path / "run"), pytest.raises(CannotWriteError, match=str(os.getpid())):
        road.pretrain(small_run(small_corpus), tmp_path / "run", view=ignore)
    road.pretrain(small_run(small_corpus), tmp_path / "run", view=ignore)
    with pytest.raises(CannotWriteError, match="already holds a run"):
        road.pretrain(small_run(small_corpus), tmp_path / "run", view=ignore)


def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_is_used(small_corpus: Path, tmp_path: Path) -> None:
    run = small_run(small_corpus)
    road.pretrain(run, tmp_path / "whole", view=ignore)
    road.pretrain(run, tmp_path / "run", view=stop_after(7))
    broken = tmp_path / "run" / "steps" / "0000000007" / "optimizer.safetensors"
    data = bytearray(broken.read_bytes())
    data[-5] ^= 4
    broken.write_bytes(bytes(data))
    said: list[dict[str, Any]] = []
    road.resume(tmp_path / "run", view=said.append)
    assert any("optimizer.safetensors" in r.get("message", "") for r in said)
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


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


def test_B047_resuming_where_there_is_no_run_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(UnmaskError) as caught:
        road.resume(tmp_path / "nowhere", view=ignore)
    assert "nowhere" in str(caught.value)


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
    assert "mlm.dense.weight" in messages and "begins anew" in messages
    assert load_model(tmp_path / "run" / "model").config.num_hidden_layers == 6


def other_corpus(folder: Path) -> Path:
    """A corpus of other words by a tokenizer of its own, in `folder`/corpus."""
    from made_up import english_documents

    from unmask.text.build import BuildOptions, build_corpus
    from unmask.text.documents import ReadOptions
    from unmask.text.train_tokenizer import TrainOptions, train

    texts = [" ".join(word[::-1] for word in text.split()) for text in english_documents(60)]
    folder.mkdir(exist_ok=True)
    (folder / "text.txt").write_text("\n".join(texts), encoding="utf-8")
    tokenizer, _ = train(texts, TrainOptions(vocab_size=100))
    options = BuildOptions(read=ReadOptions(separator="line"), heldout_share=0.2, duplicates="keep")
    build_corpus([str(folder / "text.txt")], folder / "corpus", tokenizer, options, workers=1)
    return folder / "corpus"


def test_B079_a_model_is_not_trained_on_ids_that_mean_other_tokens(small_corpus: Path, tmp_path: Path) -> None:
    road.pretrain(small_run(small_corpus, until=Steps(steps=2)), tmp_path / "run", view=ignore)
    with pytest.raises(UnmaskError, match="another tokenizer"):
        small_run(other_corpus(tmp_path / "other"), start_from=str(tmp_path / "run" / "model"))


def test_a_run_does_not_go_on_with_another_corpus(small_corpus: Path, tmp_path: Path) -> None:
    """Rebuilt under its feet with other texts or another tokenizer, it would export rows that mean nothing."""
    shutil.copytree(small_corpus, tmp_path / "corpus")
    run = small_run(tmp_path / "corpus")
    road.pretrain(run, tmp_path / "run", view=stop_after(2))
    shutil.rmtree(tmp_path / "corpus")
    shutil.move(other_corpus(tmp_path / "other"), tmp_path / "corpus")
    for act in (
        lambda: road.resume(tmp_path / "run", view=ignore),
        lambda: road.export(tmp_path / "run", tmp_path / "out"),
    ):
        with pytest.raises(UnmaskError, match="its tokenizer changed"):
            act()


def test_a_mistyped_folder_is_not_made_by_resuming(tmp_path: Path) -> None:
    with pytest.raises(UnmaskError, match="no run in this folder"):
        road.resume(tmp_path / "typo", view=ignore)
    assert not (tmp_path / "typo").exists()


def test_frequencies_known_from_the_start_save_the_first_steps(small_corpus: Path, tmp_path: Path) -> None:
    from unmask.config import MaskedTokens

    run = small_run(small_corpus, objectives=(MaskedTokens(frequency_bias=True),), until=Steps(steps=1))
    road.pretrain(run, tmp_path / "run", view=ignore)
    found = result(tmp_path / "run")
    assert abs(found["first"]["losses"]["mlm"] - found["unigram_entropy"]) < 0.3


def test_a_run_is_not_begun_anew_because_its_checkpoints_are_damaged(small_corpus: Path, tmp_path: Path) -> None:
    road.pretrain(small_run(small_corpus), tmp_path / "run", view=stop_after(7))
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    for path in (tmp_path / "run" / "steps").glob("*/state.json"):
        path.write_text(path.read_text().replace("1", "2", 1))
    with pytest.raises(DamagedError, match="no checkpoint of this run is whole"):
        road.resume(tmp_path / "run", view=ignore)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before


def test_a_corpus_rebuilt_with_another_held_out_share_is_another_corpus(small_corpus: Path, tmp_path: Path) -> None:
    from unmask.text.build import BuildOptions, build_corpus
    from unmask.text.documents import ReadOptions
    from unmask.text.tokenizer import Tokenizer

    shutil.copytree(small_corpus, tmp_path / "corpus")
    road.pretrain(small_run(tmp_path / "corpus"), tmp_path / "run", view=stop_after(2))
    options = BuildOptions(read=ReadOptions(separator="blank"), heldout_share=0.3, duplicates="exact")
    tokenizer = Tokenizer.load(small_corpus / "tokenizer")
    build_corpus([str(small_corpus.parent / "text.txt")], tmp_path / "corpus", tokenizer, options, workers=1)
    with pytest.raises(UnmaskError, match="its shards changed"):
        road.resume(tmp_path / "run", view=ignore)


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


@pytest.mark.slow
def test_a_step_of_many_batches_needs_few_open_files(small_corpus: Path, tmp_path: Path) -> None:
    """Batches of workers that travelled as open files ended long steps with "received 0 items of ancdata"."""
    import resource

    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, limits[1]))
    try:
        machine, batch = Machine(threads=1, workers=1), BatchSize(tokens=256, accumulate=40)
        assert road.pretrain(
            small_run(small_corpus, until=Steps(steps=2), machine=machine, batch=batch), tmp_path / "run", view=ignore
        ).finished
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_full_disk_is_told_as_such(small_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not as a fault of ours, and the torn line it leaves does not hide it."""
    from unmask.errors import DiskError
    from unmask.train.metrics import Metrics

    plain = Metrics.write

    def full(self: Metrics, record: dict[str, Any]) -> None:
        if record.get("step") == 5:
            with open(self.path, "a") as file:
                file.write('{"kind": "step", "st')
            raise DiskError("the disk is full", where=str(self.path))
        plain(self, record)

    monkeypatch.setattr(Metrics, "write", full)
    with pytest.raises(DiskError):
        road.pretrain(small_run(small_corpus), tmp_path / "run", view=ignore)
    assert result(tmp_path / "run")["status"] == "failed"
