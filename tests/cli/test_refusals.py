"""Command lines and files that are wrong: a sentence that names what is wrong, an exit code, and nothing harmed."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

import pytest
from commands import Road, pretrain, unmask


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
    ("tokenizer train {t} -o {o} --like robetra", "roberta"),
    ("tokenizer train {t} -o {o} --like roberta --kind unigram", "kind bpe, not unigram"),
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
    ("pretrain --resume -o {t}", "no run in this folder"),
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
    ("pretrain bert -c {c} --set machine.precision=fp16 --set machine.device=cpu -o {o}", "fp16, which CPUs only"),
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
    words = [word.format(**places) for word in shlex.split(line)]
    if words[0] == "pretrain" and not {"--steps", "--minutes", "--resume"} & {*words}:
        words += ["--steps", "1"]  # what is not refused must not train for hours
    answer = unmask(*words)
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
        ("export", road.run, "-o", road.text),
        ("export", road.run, "-o", road.run),
        ("export", road.run, "-o", tmp_path / "own"),
    ):
        answer = unmask(*words)
        assert answer.code == 73, (words, answer.err)
        assert 1 <= len(answer.error()) <= 3
    assert (tmp_path / "own" / "letter.txt").read_text() == "Dear all"
    assert {path: path.read_bytes() for path in road.tokenizer.rglob("*")} == before


@pytest.mark.parametrize("kind", ["corpus", "checkpoint"])
def test_an_export_never_replaces_a_folder_of_another_kind(road: Road, tmp_path: Path, kind: str) -> None:
    source = road.corpus if kind == "corpus" else road.run / "steps" / "0000000004"
    shutil.copytree(source, tmp_path / "out")
    assert unmask("export", road.run, "-o", tmp_path / "out").code == 73
    assert (tmp_path / "out" / "manifest.json").read_bytes() == (source / "manifest.json").read_bytes()


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


def test_a_ctrl_c_that_compiled_code_turns_into_an_error_ends_as_any_other(
    road: Road, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from unmask import road as the_road

    def interrupted(*_: object) -> int:
        raise SystemError("a dispatcher returned a result with an exception set") from KeyboardInterrupt()

    monkeypatch.setattr(the_road, "export", interrupted)
    answer = unmask("export", road.run, "-o", tmp_path / "out")
    assert answer.code == 130 and "fault" not in answer.err
