"""Every command, end to end: what it prints, what it leaves, and how it says no."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from commands import TINY, unmask
from conftest import Road
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


def pretrain(road: Road, out: Path, *words: object) -> tuple[object, ...]:
    return ("pretrain", "bert", "-c", road.corpus, "-p", "bert_tiny", "-o", out, *TINY, *words)


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
    asked = {"_UNMASK_COMPLETE": "complete_bash", "COMP_WORDS": "unmask pre", "COMP_CWORD": "1"}
    assert script(env=asked).stdout.split() == ["pretrain"]


def test_the_version_is_printed() -> None:
    assert re.fullmatch(r"unmask \d+\.\d+\.\d+\n", unmask("--version").out)


# --- signals ------------------------------------------------------------------------------------------------------------
def begin(*words: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(SCRIPT), *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def wait_for(run: Path, kind: str, process: subprocess.Popen[str]) -> None:
    path, end = run / "metrics.jsonl", time.monotonic() + 60
    while not (path.exists() and f'"kind": "{kind}"' in path.read_text().replace('":"', '": "')):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < end, "no such record"
        time.sleep(0.005)


@pytest.mark.slow
def test_ctrl_c_saves_and_leaves_and_resume_finishes(road: Road, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = begin(*pretrain(road, run, "--steps", 600, "--set", "keeping.evaluations=1"))
    wait_for(run, "step", process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "Traceback" not in err and f"unmask pretrain --resume --out {run}" in out
    step = int(re.search(r"Stopped and saved after step (\d+)", out)[1])
    assert 0 < step < 600 and (run / "steps" / f"{step:010d}" / "manifest.json").exists()
    assert json.loads((run / "run.json").read_text())["result"]["status"] == "stopped"
    assert unmask("pretrain", "--resume", "-o", run).code == 0
    assert json.loads((run / "run.json").read_text())["result"]["status"] == "finished"
    steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines() if '"step"' in line]
    assert steps == sorted(steps) and steps[-1] == 600


@pytest.mark.slow
def test_a_second_ctrl_c_stops_at_once(road: Road, tmp_path: Path) -> None:
    run = tmp_path / "run"  # one step of this run takes minutes
    process = begin(*pretrain(road, run, "--steps", 2, "--set", "batch.accumulate=50000"))
    wait_for(run, "evaluation", process)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None, "the first one waits for the step"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130 and "Traceback" not in err
    assert unmask("report", run).code == 0


# --- saying no ----------------------------------------------------------------------------------------------------------
def flip_a_bit(path: Path, at: int = 100) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.fixture(scope="session")
def bad(road: Road, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files and folders that are not what they should be."""
    here = tmp_path_factory.mktemp("bad")
    (here / "empty").mkdir()
    for name, text in {
        "empty.txt": b"", "latin.txt": b"caf\xe9", "bad.jsonl": b'{"text": 3\n', "x.bin": b"\0\1", "words.txt": b"\xff",
        "key.toml": b"learning_rate = 1\n", "section.toml": b"[training]\nnum-epochs = 3\n", "no.toml": b"seed = 1\n[a\n",
        "type.toml": b"[encoder]\nhidden_size = 'big'\n", "latin.toml": b"# \xe9\n", "deep.toml": b"x = " + b"[" * 9999,
        "three.py": b"def mine():\n    return 3\n",
    }.items():  # fmt: skip
        (here / name).write_bytes(text)
    for name in ("tokens", "sentences"):
        shutil.copytree(road.corpus, here / f"flipped-{name}")
        flip_a_bit(here / f"flipped-{name}" / f"train-00000.{name}")
    shutil.copytree(road.corpus, here / "flipped-manifest")
    flip_a_bit(here / "flipped-manifest" / "manifest.json")
    shutil.copytree(road.corpus, here / "cut")
    os.truncate(here / "cut" / "train-00000.words", 50)
    shutil.copytree(road.model, here / "flipped-model")
    flip_a_bit(here / "flipped-model" / "model.safetensors", -9)
    for name, text in {"json": "{", "list": "[]", "number": '{"run": 5}', "key": '{"run": {"sed": 1}}'}.items():
        (here / f"run-{name}").mkdir()
        (here / f"run-{name}" / "run.json").write_text(text)
    return here


# Command lines, and what the answer must name. {t}ext, {k} tokenizer, {c}orpus, {r}un, {m}odel, {b}ad things, {o}ut.
REFUSED = [
    ("--bogus", "--bogus"),
    ("pretrian", "Did you mean 'pretrain'?"),
    ("tokenizer tain", "tain"),
    ("corpus build", "SOURCE"),
    ("tokenizer train {t}", "--out"),
    ("tokenizer train {b}/none.txt -o {o}", "none.txt"),
    ("tokenizer train {b}/empty -o {o}", "no text file in this folder"),
    ("tokenizer train {b}/empty.txt -o {o}", "no text to learn from"),
    ("tokenizer train {b}/latin.txt -o {o}", "latin.txt:1, byte 4"),
    ("tokenizer train {b}/bad.jsonl -o {o}", "bad.jsonl:1"),
    ("tokenizer train {b}/x.bin -o {o}", "x.bin"),
    ("tokenizer train hf: -o {o}", "hf:OWNER/NAME"),
    ("tokenizer train {t} -o {o} --vocab-size 5", "--vocab-size"),
    ("tokenizer train {t} -o {o} --vocab-size 12", "vocab_size to"),
    ("tokenizer train {t} -o {o} --vocab-size many", "--vocab-size"),
    ("tokenizer train {t} -o {o} --kind wordpeice", "wordpiece"),
    ("tokenizer train {t} -o {o} --limit-alphabet 0", "--limit-alphabet"),
    ("tokenizer train {t} -o {o} --separator ''", "separator"),
    ("tokenizer train {t} -o {o} --skip-bad -1", "--skip-bad"),
    ("tokenizer inspect {b}/none", "none"),
    ("tokenizer inspect {r}", "No tokenizer in this folder"),
    ("tokenizer inspect {c}", "No tokenizer in this folder"),
    ("tokenizer extend {k} {t} -o {o} --add 0", "--add"),
    ("tokenizer extend {c} {t} -o {o}", "No tokenizer in this folder"),
    ("corpus build {t} -t {b}/none -o {o}", "none"),
    ("corpus build {t} -t {t} -o {o}", "No tokenizer in this folder"),
    ("corpus build {t} -t {k} -o {o} --language fr", "auto, en or zh"),
    ("corpus build {t} -t {k} -o {o} --duplicates all", "keep, exact or near"),
    ("corpus build {t} -t {k} -o {o} --heldout 1.5", "--heldout"),
    ("corpus build {t} -t {k} -o {o} --segmenter mecab", "none or jieba"),
    ("corpus build {t} -t {k} -o {o} --user-words {b}/words.txt", "words.txt"),
    ("corpus build {b}/empty.txt -t {k} -o {o} --workers 1", "no text to store"),
    ("corpus inspect {b}/none", "none"),
    ("corpus inspect {m}", "not a corpus"),
    ("corpus inspect {k}", "{k}"),
    ("corpus inspect {t}", "{t}"),
    ("corpus inspect {c} --document 99999", "give 0 …"),
    ("corpus inspect {c} --split test", "train or heldout"),
    ("corpus inspect {b}/flipped-tokens", "train-00000.tokens is damaged"),
    ("corpus inspect {b}/flipped-sentences --document 0", "train-00000.sentences is damaged"),
    ("corpus inspect {b}/flipped-manifest", "manifest.json"),
    ("pretrain -o {o}", "--corpus FOLDER"),
    ("pretrain brt -c {c} -o {o}", "did you mean bert?"),
    ("pretrain bert -c {b}/none -o {o}", "none"),
    ("pretrain bert -c {m} -o {o}", "not a corpus"),
    ("pretrain bert -c {b}/flipped-tokens -p bert_tiny -o {o}", "train-00000.tokens is damaged"),
    ("pretrain bert -c {b}/cut -p bert_tiny -o {o}", "train-00000.words is damaged: truncated"),
    ("pretrain bert -c {c} -p bert_huge -o {o}", "did you mean bert_large?"),
    ("pretrain bert -c {c} --steps 3 --tokens 5 -o {o}", "--minutes, --steps, --tokens"),
    ("pretrain bert -c {c} --steps 0 -o {o}", "until.steps must be above 0"),
    ("pretrain bert -c {c} --minutes nan -o {o}", "until.minutes must be a finite number"),
    ("pretrain bert -c {c} --seed x -o {o}", "--seed"),
    ("pretrain bert --corpsu {c} -o {o}", "--corpus"),
    ("pretrain bert extra -c {c} -o {o}", "extra"),
    ("pretrain bert -c {c} --start-from {b}/none -o {o}", "no such folder"),
    ("pretrain bert -c {c} --start-from {c} -o {o}", "config.json is missing"),
    ("pretrain bert -c {c} --start-from {m} -p bert_mini -o {o}", "--preset would have no effect"),
    ("pretrain bert -c {c} --start-from {m} --set encoder.hidden_size=64 -o {o}", "would have no effect"),
    ("pretrain bert -c {c} --set encoder.vocab_size=9 -o {o}", "comes from the corpus"),
    ("pretrain --resume -o {c}", "no run in this folder"),
    ("pretrain --resume -o {b}/run-json", "run.json can't be read"),
    ("pretrain --resume -o {b}/run-key", "did you mean seed?"),
    ("pretrain {b}/key.toml -c {c} -o {o}", "did you mean optimizer.learning_rate?"),
    ("pretrain {b}/section.toml -c {c} -o {o}", "unknown setting training"),
    ("pretrain {b}/no.toml -c {c} -o {o}", "line 2"),
    ("pretrain {b}/type.toml -c {c} -o {o}", 'encoder.hidden_size must be a whole number, not "big"'),
    ("pretrain {b}/latin.toml -c {c} -o {o}", "latin.toml:1"),
    ("pretrain {b}/deep.toml -c {c} -o {o}", "deep.toml"),
    ("pretrain {b}/none.toml -c {c} -o {o}", "none.toml"),
    ("pretrain {b}/three.py:mine -c {c} -o {o}", "returned int"),
    ("pretrain {b}/none.py:mine -c {c} -o {o}", "none.py"),
    ("pretrain bert -c {c} --set optimizer.learnign_rate=1 -o {o}", "did you mean optimizer.learning_rate?"),
    ("pretrain bert -c {c} --set encoder.hidden_size -o {o}", "name=value"),
    ("pretrain bert -c {c} --set encoder.hidden_size=7 -o {o}", "multiple of num_attention_heads"),
    ("pretrain bert -c {c} --set seed=99999999999999999999 -o {o}", "64 bits"),
    ("pretrain bert -c {c} -p bert_tiny --set machine.precision=fp16 --set machine.device=cpu -o {o}", "fp16, which CPUs only emulate"),
    ("fill {m}", "TEXT"),
    ("fill {m} 'no mask'", "the text has no [MASK]"),
    ("fill {m} [MASK] --top 0", "--top"),
    ("fill {b}/none [MASK]", "no such folder"),
    ("fill {c} [MASK]", "config.json is missing"),
    ("fill {k} [MASK]", "config.json is missing"),
    ("fill {b}/flipped-model [MASK]", "model.safetensors is not the file that was written"),
    ("export {r}", "--out"),
    ("export {m} -o {o}", "no run in this folder"),
    ("export {r} -o {o} --checkpoint 99", "4 (best, last)"),
    ("export {b}/run-number -o {o}", "must be a table"),
    ("report {c}", "no run in this folder"),
    ("report {b}/run-list", "no run in this folder"),
    ("demo --minutes 0", "--minutes"),
    ("demo -o {o} --set sed=1", "did you mean seed?"),
    ("doctor --bnch", "--bench"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "named"), REFUSED, ids=[line for line, _ in REFUSED])
def test_R14_B209_B210_what_is_wrong_is_refused_in_three_lines_that_name_it(
    road: Road, bad: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, named: str
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    places = {"t": road.text, "k": road.tokenizer, "c": road.corpus, "r": road.run, "m": road.model, "b": bad}
    places |= {"o": tmp_path / "out"}
    answer = unmask(*(word.format(**places) for word in shlex.split(line)))
    assert answer.code == 2, answer.err
    assert "Traceback" not in answer.err and not (tmp_path / "out" / "model").exists()
    assert named.format(**places) in answer.err
    if "Usage: " not in answer.err:
        assert 1 <= len(answer.error()) <= 3 and len(answer.error()[0]) < 400, answer.err


def test_a_place_that_is_taken_is_never_written_over(road: Road, tmp_path: Path) -> None:
    """Exit code 73, and not one byte changed."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "letter.txt").write_text("Dear all")
    before = {path: path.read_bytes() for path in road.tokenizer.rglob("*")}
    for words in (
        ("corpus", "build", road.text, "-t", road.tokenizer, "-o", road.text),
        ("corpus", "build", road.text, "-t", road.tokenizer, "-o", road.tokenizer),
        ("corpus", "build", road.text, "-t", road.tokenizer, "-o", tmp_path / "own"),
        pretrain(road, road.run, "--steps", 1),
        pretrain(road, road.text, "--steps", 1),
        ("pretrain", "--resume", "-o", road.text),
        ("export", road.run, "-o", road.text),
        ("export", road.run, "-o", road.run),
        ("export", road.run, "-o", tmp_path / "own"),
    ):
        answer = unmask(*words)
        assert answer.code == 73, (words, answer.err)
        assert 1 <= len(answer.error()) <= 3
    assert (tmp_path / "own" / "letter.txt").read_text() == "Dear all"
    assert {path: path.read_bytes() for path in road.tokenizer.rglob("*")} == before


@pytest.mark.xfail(reason="files.write_folder(replace=True) replaces any folder unmask wrote", strict=True)
@pytest.mark.parametrize("kind", ["corpus", "checkpoint"])
def test_an_export_never_replaces_a_folder_of_another_kind(road: Road, tmp_path: Path, kind: str) -> None:
    source = road.corpus if kind == "corpus" else road.run / "steps" / "0000000004"
    shutil.copytree(source, tmp_path / "out")
    assert unmask("export", road.run, "-o", tmp_path / "out").code == 73
    assert (tmp_path / "out" / "manifest.json").read_bytes() == (source / "manifest.json").read_bytes()


@pytest.mark.xfail(reason="road.resume locks, and so creates, the folder before it looks for run.json", strict=True)
def test_resuming_where_there_is_no_run_leaves_no_trace(tmp_path: Path) -> None:
    assert unmask("pretrain", "--resume", "-o", tmp_path / "typo").code == 2
    assert not (tmp_path / "typo").exists()


def test_a_place_that_can_not_be_written_is_refused_before_any_work(road: Road, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    if os.access(locked, os.W_OK):  # root may write everywhere, except where the system itself refuses
        locked = Path("/sys")
        if not locked.is_dir():
            pytest.skip("this user may write everywhere")
    for words in (
        ("corpus", "build", road.text, "-t", road.tokenizer, "-o", locked / "unmask-test"),
        pretrain(road, locked / "unmask-test", "--steps", 1),
        ("export", road.run, "-o", locked / "unmask-test"),
    ):
        answer = unmask(*words)
        assert answer.code == 73, (words, answer.err)
        assert 1 <= len(answer.error()) <= 3 and str(locked) in answer.err


@pytest.mark.parametrize("command", ["tokenizer train {t} -o", "pretrain bert -c {c} --steps 1 -o", "fill"])
def test_a_name_no_file_system_takes_is_refused_in_words(road: Road, command: str) -> None:
    words = [word.format(t=road.text, c=road.corpus) for word in command.split()]
    answer = unmask(*words, "x" * 300, *(["[MASK]"] if command == "fill" else []))
    assert answer.code in (2, 73, 74) and "File name too long" in answer.err and len(answer.error()) <= 3


def test_a_run_too_large_for_the_memory_is_refused_in_words(road: Road, tmp_path: Path) -> None:
    answer = unmask(*pretrain(road, tmp_path / "run", "--steps", 1, "--set", "encoder.intermediate_size=100000000000"))
    assert answer.code == 2 and "not enough memory" in answer.err and "--dry-run" in answer.err


def test_a_fault_of_ours_leaves_its_traceback_in_a_file(
    road: Road, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tempfile

    from unmask import road as the_road

    def broken(*_: object) -> int:
        raise ZeroDivisionError("a made-up fault")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(the_road, "export", broken)
    answer = unmask("export", road.run, "-o", tmp_path / "out")
    assert answer.code == 1 and "Traceback" not in answer.err and "fault in unmask" in answer.err
    log = re.search(r"where: (.*\.log)", answer.err)[1]
    assert "ZeroDivisionError: a made-up fault" in Path(log).read_text() and "Traceback" in Path(log).read_text()


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
