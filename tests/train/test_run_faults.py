from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import ignore, result, small_run, stop_after, weights

from unmask import road
from unmask.config import BatchSize, Machine, Steps
from unmask.errors import CannotWriteError, DamagedError, UnmaskError
from unmask.objectives.base import Losses
from unmask.objectives.masked import MaskedTokenObjective
from unmask.train.step import Diverged


def test_R7_a_loss_that_is_not_a_number_stops_before_the_step_and_names_the_documents(
    small_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, calls = MaskedTokenObjective.loss, []

    def poisoned(self: MaskedTokenObjective, *arguments: Any) -> Losses:
        calls.append(1)
        found = plain(self, *arguments)
        broken = self.training and len(calls) > 20
        return {n: replace(s, total=s.total * (float("nan") if broken else 1.0)) for n, s in found.items()}

    monkeypatch.setattr(MaskedTokenObjective, "loss", poisoned)
    steps: list[int] = []
    with pytest.raises(Diverged) as caught:
        road.pretrain(
            small_run(small_corpus), tmp_path / "run", view=lambda r: r["kind"] == "step" and steps.append(r["step"])
        )
    assert f"in step {steps[-1] + 1}" in caught.value.what and "text.txt record" in caught.value.where
    assert caught.value.exit_code != 0 and result(tmp_path / "run")["status"] == "failed"
    monkeypatch.setattr(MaskedTokenObjective, "loss", plain)
    road.resume(tmp_path / "run", view=ignore)  # what was saved is sound
    road.pretrain(small_run(small_corpus), tmp_path / "whole", view=ignore)
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


def test_R7_a_broken_sequence_is_named_alone(
    small_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the documents whose hidden states are not numbers, out of a batch of many."""
    from unmask.nn.encoder import Encoder

    plain = Encoder._states

    def poisoned(self: Encoder, batch: Any, *rest: Any) -> Iterator[torch.Tensor]:
        for hidden in plain(self, batch, *rest):
            if self.training:
                hidden = hidden.clone()
                hidden[batch.layout.rows == 1] = float("nan")
            yield hidden

    monkeypatch.setattr(Encoder, "_states", poisoned)
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


def test_B047_resuming_where_there_is_no_run_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(UnmaskError) as caught:
        road.resume(tmp_path / "nowhere", view=ignore)
    assert "nowhere" in str(caught.value)


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


def test_a_run_begins_in_an_empty_folder_only(small_corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("x")
    with pytest.raises(CannotWriteError, match="not empty"):
        road.pretrain(small_run(small_corpus), tmp_path / "mine", view=ignore)
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["notes.txt"]
