"""Every command, end to end: what it prints, what it leaves, and how it says no."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from commands import TINY, Road, unmask
from typer.testing import CliRunner

from unmask import recipes, settings
from unmask.cli.main import app
from unmask.config import RunConfig, Steps

SCRIPT = Path(sys.executable).with_name("unmask")
COMMANDS = ["demo", "tokenizer train", "tokenizer inspect", "tokenizer extend", "corpus build", "corpus inspect"]
COMMANDS += ["pretrain", "fill", "export", "report", "doctor"]


def script(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """The console script, as a process of its own."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "NO_COLOR": "1", "PYTHONWARNINGS": "error"}
    environment |= options.pop("env", {})
    return subprocess.run(
        [str(SCRIPT), *map(str, words)], capture_output=True, text=True, timeout=60, env=environment, **options
    )


def printed_json(text: str) -> Any:
    return json.JSONDecoder().raw_decode(text)[0]


# --- the road -----------------------------------------------------------------------------------------------------------
def test_the_first_commands_of_the_road_work_as_a_script(road: Road, tmp_path: Path) -> None:
    """The same files as those made inside the test's process: nothing depends on where it runs."""
    trained = script(
        "tokenizer", "train", road.text, "-o", tmp_path / "t", "--vocab-size", 120, "--lowercase", "--separator", "blank"
    )  # fmt: skip
    assert trained.returncode == 0, trained.stderr
    assert (tmp_path / "t" / "tokenizer.json").read_bytes() == (road.tokenizer / "tokenizer.json").read_bytes()
    follow = next(line for line in trained.stdout.splitlines() if line.startswith("Next: "))
    built = script(*shlex.split(follow)[2:], "--heldout", 0.1, "--duplicates", "exact", "--workers", 1, cwd=tmp_path)
    assert built.returncode == 0, built.stderr
    for name in ("train-00000.tokens", "heldout-00000.documents"):
        assert (tmp_path / "corpus" / name).read_bytes() == (road.corpus / name).read_bytes()
    assert not list(tmp_path.glob("*.parts")) and "documents read" in built.stdout


def test_tokenizer_inspect_shows_cuts_and_measures(road: Road) -> None:
    answer = unmask("tokenizer", "inspect", road.tokenizer, road.text, "--text", "the old cats")
    assert answer.code == 0
    assert re.search(r"\| the +\| +\d+ \| the +\| word", answer.out) and "##" in answer.out
    assert "tokens_per_word" in answer.out


@pytest.mark.parametrize("kind", ["bpe", "unigram", "characters"])
def test_every_kind_of_tokenizer_is_trained(road: Road, tmp_path: Path, kind: str) -> None:
    answer = unmask("tokenizer", "train", road.text, "-o", tmp_path / "t", "--kind", kind, "--vocab-size", 400)
    assert answer.code == 0, answer.err
    assert unmask("tokenizer", "inspect", tmp_path / "t", "--text", "The old cat").out.count("word") >= 3


@pytest.mark.parametrize("like", ["roberta", "gpt2", "modernbert", "albert", "t5"])
def test_a_tokenizer_like_a_published_one_is_trained_and_makes_a_corpus(road: Road, tmp_path: Path, like: str) -> None:
    answer = unmask("tokenizer", "train", road.text, "-o", tmp_path / "t", "--like", like, "--vocab-size", 400)
    assert answer.code == 0, answer.err
    shown = unmask("tokenizer", "inspect", tmp_path / "t", "--text", "The old cat").out
    assert shown.count("word") >= 3
    built = unmask("corpus", "build", road.text, "-t", tmp_path / "t", "-o", tmp_path / "c", "--workers", 1,
                   "--separator", "blank")  # fmt: skip
    assert built.code == 0, built.err


def test_tokenizer_extend_keeps_old_ids_and_grows_a_model(road: Road, tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text("The zebrafish swims. " * 50, encoding="utf-8")
    words = ("tokenizer", "extend", road.tokenizer, tmp_path / "new.txt", "--add", 2, "-o", tmp_path / "t")
    assert unmask(*words).code == 0
    old = (road.tokenizer / "vocab.txt").read_text().splitlines()
    new = (tmp_path / "t" / "vocab.txt").read_text().splitlines()
    assert new[: len(old)] == old and len(new) == len(old) + 2
    grown = unmask(
        "tokenizer", "extend", road.model, tmp_path / "new.txt", "--add", 2, "--model", "-o", tmp_path / "model"
    )
    assert grown.code == 0 and f"Model of {len(new)} tokens" in grown.out
    assert json.loads((tmp_path / "model" / "config.json").read_text())["vocab_size"] == len(new)
    assert unmask("fill", tmp_path / "model", "the [MASK] sees").code == 0


def test_corpus_build_again_keeps_what_is_there(road: Road) -> None:
    before = (road.corpus / "manifest.json").stat().st_mtime_ns
    answer = unmask(
        "corpus", "build", road.text, "-t", road.tokenizer, "-o", road.corpus, "--heldout", 0.1, "--workers", 1,
        "--duplicates", "exact", "--separator", "blank",
    )  # fmt: skip
    assert answer.code == 0 and "kept: same texts" in answer.out
    assert (road.corpus / "manifest.json").stat().st_mtime_ns == before


def test_corpus_inspect_counts_and_shows_a_document_with_its_place(road: Road) -> None:
    answer = unmask("corpus", "inspect", road.corpus)
    assert answer.code == 0 and re.search(r"documents read +\| +120", answer.out)
    answer = unmask("corpus", "inspect", road.corpus, "--document", 0, "--split", "heldout")
    assert answer.code == 0 and f"{road.text}, record" in answer.out and " near the " in answer.out


def test_pretrain_leaves_a_run_a_model_and_a_report(road: Road) -> None:
    assert (road.run / "report.html").stat().st_size > 10_000
    assert {path.name for path in road.model.iterdir()} >= {"config.json", "model.safetensors", "tokenizer.json"}
    kinds = [json.loads(line)["kind"] for line in (road.run / "metrics.jsonl").read_text().splitlines()]
    assert kinds.count("step") == 4 and kinds.count("evaluation") == 3


def test_B210_the_run_that_will_be_is_the_one_that_is_printed_and_the_one_that_is_stored(
    road: Road, tmp_path: Path
) -> None:
    """Recipe, then named options, then --set, in --dry-run and in run.json alike."""
    (tmp_path / "my.toml").write_text('seed = 3\nencoder = "bert_mini"\n[until]\nsteps = 9\n[optimizer]\nbeta1 = 0.8\n')
    words = (
        "pretrain",
        tmp_path / "my.toml",
        "-c",
        road.corpus,
        "-p",
        "bert_tiny",
        "--steps",
        2,
        "-o",
        tmp_path / "run",
    )
    words += (*TINY, "--set", "seed=5", "--set", "optimizer.learning_rate=2e-4")
    shown = unmask(*words, "--dry-run")
    assert shown.code == 0 and not (tmp_path / "run").exists()
    printed = printed_json(shown.out)
    assert printed["seed"] == 5 and printed["until"] == {"kind": "steps", "steps": 2}
    assert printed["encoder"]["hidden_size"] == 32 and printed["encoder"]["num_hidden_layers"] == 2
    assert printed["optimizer"]["learning_rate"] == 2e-4 and printed["optimizer"]["beta1"] == 0.8
    for cost in ("parameters", "steps", "memory for training", "minutes here"):
        assert cost in shown.out
    assert unmask(*words).code == 0
    assert json.loads((tmp_path / "run" / "run.json").read_text())["run"] == printed


def test_resume_of_a_finished_run_changes_nothing_in_its_weights(road: Road) -> None:
    before = (road.model / "model.safetensors").read_bytes()
    assert unmask("pretrain", "--resume", "-o", road.run).code == 0
    assert (road.model / "model.safetensors").read_bytes() == before


def test_resume_takes_no_other_settings_not_even_zero(road: Road) -> None:
    for words in (
        ["--steps", 0],
        ["--minutes", 0],
        ["--seed", 0],
        ["--dry-run"],
        ["-p", "bert_tiny"],
        ["--set", "a=1"],
    ):
        answer = unmask("pretrain", "--resume", "-o", road.run, *words)
        assert answer.code == 2 and "keeps the settings it began with" in answer.err, words


def test_a_run_whose_metrics_were_lost_can_still_be_resumed(road: Road, tmp_path: Path) -> None:
    shutil.copytree(road.run, tmp_path / "run")
    (tmp_path / "run" / "metrics.jsonl").write_text("{oops\n")
    answer = unmask("pretrain", "--resume", "-o", tmp_path / "run")
    assert answer.code == 0 and "Model: " in answer.out


def test_fill_guesses_each_mask(road: Road) -> None:
    answer = unmask("fill", road.model, "the old [MASK] sees the [MASK].", "a [MASK]", "--top", 2)
    assert answer.code == 0
    assert "(mask 1)" in answer.out and "(mask 2)" in answer.out and answer.out.count("| token") == 3
    assert len(re.findall(r"\| 0\.\d{4}", answer.out)) == 6


def test_export_writes_the_model_of_a_checkpoint(road: Road, tmp_path: Path) -> None:
    answer = unmask("export", road.run, "-o", tmp_path / "model", "--checkpoint", "2")
    assert answer.code == 0 and "Model of step 2" in answer.out
    assert unmask("export", road.run, "-o", tmp_path / "model").code == 0
    weights = "model.safetensors"
    assert (tmp_path / "model" / weights).read_bytes() == (road.model / weights).read_bytes()


def test_report_is_written_anew(road: Road, tmp_path: Path) -> None:
    shutil.copytree(road.run, tmp_path / "run")
    (tmp_path / "run" / "report.html").unlink()
    answer = unmask("report", tmp_path / "run")
    assert answer.code == 0 and Path(answer.out.strip()) == tmp_path / "run" / "report.html"
    assert (tmp_path / "run" / "report.html").exists()


def test_doctor_tells_the_machine() -> None:
    answer = unmask("doctor")
    assert answer.code == 0 and all(word in answer.out for word in ("cores", "torch", "precision of a run"))


def test_results_go_to_standard_output_and_progress_to_standard_error(road: Road) -> None:
    answer = unmask("corpus", "inspect", road.corpus)
    assert "checking the corpus" in answer.err and "checking" not in answer.out
    assert "documents read" in answer.out and "documents read" not in answer.err


def test_what_comes_next_can_be_pasted_into_a_shell(road: Road, tmp_path: Path) -> None:
    answer = unmask("tokenizer", "train", road.text, "-o", tmp_path / "a b", "--separator", "\\n\\n", "--skip-bad", 2)
    words = shlex.split(answer.out.split("Next: ")[1])
    assert words[:3] == ["unmask", "corpus", "build"] and str(road.text) in words and str(tmp_path / "a b") in words
    assert words[words.index("--separator") + 1] == "\\n\\n" and words[words.index("--skip-bad") + 1] == "2"


def test_a_python_file_and_a_module_are_recipes_on_the_command_line(
    road: Road, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "from unmask import recipes, presets\nfrom dataclasses import replace\nfrom unmask.config import Steps\n"
    code += "def mine():\n    return replace(recipes.mlm_only(presets.bert_tiny()), until=Steps(steps=7))\n"
    (tmp_path / "recipes_of_mine.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    for spec in (f"{tmp_path / 'recipes_of_mine.py'}:mine", "recipes_of_mine:mine"):
        answer = unmask("pretrain", spec, "-c", road.corpus, "--dry-run")
        run = settings.parse(RunConfig, printed_json(answer.out))
        assert run.until == Steps(steps=7) and run.objectives == recipes.mlm_only().objectives


def test_one_word_chooses_encoder_and_recipe_of_a_family(road: Road) -> None:
    for words, recipe in (
        (["-p", "electra-small"], recipes.electra),
        (["mlm_only", "-p", "electra-small"], recipes.mlm_only),
    ):
        answer = unmask("pretrain", *words, "-c", road.corpus, "--steps", 2, *TINY, "--dry-run")
        assert answer.code == 0, answer.err
        run = settings.parse(RunConfig, printed_json(answer.out))
        assert run.objectives == recipe().objectives and run.encoder.embedding_size == 128
        assert run.encoder.num_hidden_layers == 12 and run.until == Steps(steps=2)


@pytest.mark.parametrize(
    "preset", ["electra_small", "deberta_v3_xsmall", "albert_base", "modernbert_base", "roberta_base"]
)
def test_a_family_is_pretrained_by_its_preset_alone(road: Road, tmp_path: Path, preset: str) -> None:
    small = ("--set", "encoder.num_hidden_layers=2", "--set", "examples.max_length=32")
    answer = unmask("pretrain", "-p", preset, "-c", road.corpus, "--steps", 2, "-o", tmp_path / "run", *TINY, *small)
    assert answer.code == 0, answer.err
    assert (tmp_path / "run" / "model" / "config.json").exists()


# --- help ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("command", ["", "tokenizer", "corpus", *COMMANDS])
def test_help_of_every_command_has_an_example_and_every_option_a_sentence(command: str) -> None:
    answer = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert answer.exit_code == 0
    assert "Usage: " in answer.output
    if command in COMMANDS:
        assert "Example: unmask" in answer.output or command == "report"
    for line in re.findall(r"^│ .*--[a-z].*", answer.output, re.MULTILINE):
        assert re.search(r"[a-z]{2,} [a-zA-Z`(]+", line), line


@pytest.mark.parametrize(("command", "words"), [("fill", "[MASK]"), ("corpus build", "hf:OWNER/NAME/CONFIG:SPLIT")])
def test_brackets_in_help_are_shown_and_not_taken_for_markup(command: str, words: str) -> None:
    answer = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert words in answer.output


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_imports_nothing_heavy(command: str) -> None:
    code = "import sys, unmask.cli.main as m\ntry: m.main()\nexcept SystemExit as e: assert not e.code\n"
    code += "print([n for n in sys.modules if n in ('torch', 'numpy', 'tokenizers', 'pyarrow', 'safetensors')])"
    run = subprocess.run(
        [sys.executable, "-c", code, *command.split(), "--help"], capture_output=True, text=True, timeout=30
    )
    assert run.returncode == 0 and run.stdout.strip().endswith("[]"), run.stdout[-200:] + run.stderr[-500:]


def test_help_comes_at_once() -> None:
    began = time.perf_counter()
    assert script("--help").returncode == 0
    assert time.perf_counter() - began < 2.0  # 0.2 s on a machine that does nothing else


def test_the_completion_script_is_printed_and_completes() -> None:
    bash = ["bash", "-c", f"{shlex.quote(str(SCRIPT))} --show-completion bash; true"]
    shown = subprocess.run(bash, capture_output=True, text=True, timeout=30)
    assert "complete -o default -F _unmask_completion unmask" in shown.stdout, shown.stderr
    asked = {"_UNMASK_COMPLETE": "complete_bash", "COMP_WORDS": "unmask pret", "COMP_CWORD": "1"}
    assert script(env=asked).stdout.split() == ["pretrain"]


def test_the_version_is_printed() -> None:
    assert re.fullmatch(r"unmask \d+\.\d+\.\d+\n", unmask("--version").out)


@pytest.mark.slow
def test_the_demo_walks_the_whole_road(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All five stages, on a text that stands where the demo would have put Python's documentation."""
    import json

    from made_up import english_documents
    from typer.testing import CliRunner

    from unmask.cli.main import app

    lines = [json.dumps({"text": text}) + "\n" for text in english_documents(600)]
    (tmp_path / "text.jsonl").write_text("".join(lines), encoding="utf-8")
    done = CliRunner().invoke(app, ["demo", "--minutes", "0.1", "--out", str(tmp_path), "--set", "machine.threads=1"])
    assert done.exit_code == 0, done.output
    for said in ("1/5", "5/5", "Unigram entropy", "nats below it", "Return a [MASK] of strings.", "report.html"):
        assert said in done.output
    assert (tmp_path / "run" / "report.html").exists() and (tmp_path / "run" / "model" / "config.json").exists()


def test_a_tokenizer_never_replaces_the_files_of_a_model(small_corpus: Path, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from unmask.cli.main import app
    from unmask.errors import CannotWriteError

    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    text = str(small_corpus.parent / "text.txt")
    done = CliRunner().invoke(
        app, ["tokenizer", "train", text, "--out", str(tmp_path / "model"), "--vocab-size", "200"]
    )
    assert isinstance(done.exception, CannotWriteError) and "more than a tokenizer" in str(done.exception)
    for _ in range(2):  # a tokenizer may be trained anew
        out = str(tmp_path / "tok")
        assert CliRunner().invoke(app, ["tokenizer", "train", text, "--out", out, "--vocab-size", "200"]).exit_code == 0


def test_a_corpus_that_will_disappoint_is_told_when_it_is_built(small_corpus: Path, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from unmask.cli.main import app

    (tmp_path / "book.txt").write_text("一个很长的故事。" * 50, encoding="utf-8")
    tokenizer = str(small_corpus / "tokenizer")
    done = CliRunner().invoke(
        app,
        ["corpus", "build", str(tmp_path / "book.txt"), "-t", tokenizer, "-o", str(tmp_path / "c"), "--workers", "1"],
    )
    assert done.exit_code == 0, done.output
    assert "unknown to this tokenizer" in done.output and "--separator blank" in done.output
    assert "unmask pretrain" not in done.output
