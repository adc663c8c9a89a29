"""A build that is stopped, killed or short of disk leaves nothing wrong, and goes on."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_corpora import SMALL, manifest, some_texts, write_jsonl

from unmask.errors import CannotWriteError, DiskError, UnmaskError
from unmask.text.build import build_corpus
from unmask.text.parts import part_path


def children() -> list[int]:
    """Processes whose parent is this one."""
    return [int(pid) for pid in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()]


def test_a_killed_worker_is_an_error_and_leaves_no_process_behind(tmp_path, tokenizer):
    source = write_jsonl(tmp_path / "a.jsonl", some_texts(200))

    def kill_one(what: str, done: float, total: float | None) -> None:
        if "preparing" in what and total is None:
            for child in children():
                os.kill(child, signal.SIGKILL)

    begin = time.monotonic()
    with pytest.raises(UnmaskError, match="worker process was killed by signal 9"):
        build_corpus([source], tmp_path / "c", tokenizer, workers=2, chunk_characters=1500, progress=kill_one)
    assert time.monotonic() - begin < 10
    assert not children()
    assert part_path(tmp_path / "c.parts", 0).is_file()
    build_corpus([source], tmp_path / "c", tokenizer)
    assert not (tmp_path / "c.parts").exists()


def test_a_second_build_of_the_same_corpus_is_refused_while_the_first_is_at_work(tmp_path, tokenizer):
    source = write_jsonl(tmp_path / "a.jsonl", some_texts(20))
    messages = []

    def again(what: str, done: float, total: float | None) -> None:
        if not messages:
            with pytest.raises(CannotWriteError) as error:
                build_corpus([source], tmp_path / "c", tokenizer)
            messages.append(str(error.value))

    build_corpus([source], tmp_path / "c", tokenizer, progress=again)
    assert f"process {os.getpid()}" in messages[0]


SCRIPT = """
import os, signal, sys
from pathlib import Path
from unmask.text.build import BuildOptions, build_corpus
from unmask.text.tokenizer import Tokenizer
from unmask.text.words import WordSplitter

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job would have it ignored

def progress(what, done, total):
    print(what, done, flush=True)
    sys.stdin.readline()  # goes no further until told to, or until nobody is there to tell it

source, out, tokenizer = sys.argv[1:4]
build_corpus([source], out, Tokenizer.load(Path(tokenizer)), BuildOptions(shard_tokens=2000), workers=2,
             chunk_characters=1500, progress=progress)
"""


def start_build(source: str, out: Path, tokenizer: Path) -> subprocess.Popen:
    """A build in a process group of its own that waits for a line after each report of progress."""
    command = [sys.executable, "-c", SCRIPT, source, str(out), str(tokenizer)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def group_is_gone(group: int, patience: float = 10) -> bool:
    end = time.monotonic() + patience
    while time.monotonic() < end:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_after_a_kill_or_ctrl_c_the_same_command_goes_on_and_nobody_is_left(tmp_path, tokenizer, how):
    source = write_jsonl(tmp_path / "a.jsonl", some_texts(150))
    build_corpus([source], tmp_path / "undisturbed", tokenizer, SMALL)
    tokenizer.save(tmp_path / "t")
    process = start_build(source, tmp_path / "c", tmp_path / "t")
    for _ in range(3):
        assert process.stdout.readline().startswith("preparing")
        process.stdin.write("\n")
        process.stdin.flush()
    assert process.stdout.readline().startswith("preparing")
    (os.killpg if how == signal.SIGINT else os.kill)(process.pid, how)  # Ctrl-C reaches the whole group
    _, said = process.communicate(timeout=20)
    assert process.returncode == -how
    assert group_is_gone(process.pid)
    assert said.count("KeyboardInterrupt") == (how == signal.SIGINT)
    assert not (tmp_path / "c").exists()
    done = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "c.parts").glob("*.part")}
    assert len(done) >= 4
    again: dict[str, int] = {}

    def look(what: str, done: float, total: float | None) -> None:
        again.update({path.name: path.stat().st_mtime_ns for path in (tmp_path / "c.parts").glob("*.part")})

    build_corpus([source], tmp_path / "c", tokenizer, SMALL, chunk_characters=1500, progress=look)
    assert {name: again[name] for name in done} == done
    assert manifest(tmp_path / "c") == manifest(tmp_path / "undisturbed")
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"a.jsonl", "c", "undisturbed", "t"}


def test_a_full_disk_is_said_and_the_old_corpus_stays(tmp_path, tokenizer):
    source = write_jsonl(tmp_path / "a.jsonl", some_texts(100))
    build_corpus([source], tmp_path / "c", tokenizer, SMALL)
    old = manifest(tmp_path / "c")
    tokenizer.save(tmp_path / "t")
    size = max(path.stat().st_size for path in (tmp_path / "t").rglob("*"))

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 1000, size + 1000))

    command = SCRIPT.replace("chunk_characters=1500", "chunk_characters=10**9").replace("400", "10**9")
    write_jsonl(tmp_path / "a.jsonl", some_texts(4000))
    done = subprocess.run(
        [sys.executable, "-c", command, source, str(tmp_path / "c"), str(tmp_path / "t")],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        preexec_fn=limit,
        timeout=60,
    )
    assert DiskError.__name__ in done.stderr and "File too large" in done.stderr
    assert manifest(tmp_path / "c") == old


MEMORY_SCRIPT = """
import resource, sys
from pathlib import Path
from unmask.text.build import build_corpus
from unmask.text.tokenizer import Tokenizer

build_corpus([sys.argv[1]], sys.argv[2], Tokenizer.load(Path(sys.argv[3])), workers=2, chunk_characters=100_000)
own = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(own / 1024, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)
"""


@pytest.mark.slow
def test_B017_memory_does_not_grow_with_the_corpus(tmp_path, tokenizer):
    tokenizer.save(tmp_path / "t")
    peaks = []
    for count in (1000, 8000):
        texts = [" ".join(some) for some in zip(*[iter(some_texts(4 * count))] * 4, strict=True)]
        source = write_jsonl(tmp_path / f"{count}.jsonl", texts)
        command = [sys.executable, "-c", MEMORY_SCRIPT, source, str(tmp_path / str(count)), str(tmp_path / "t")]
        said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
        peaks.append([float(mib) for mib in said.split()])
    (own, worker), (own_large, worker_large) = peaks
    assert worker_large < worker + 5  # MiB; eight times the text
    assert own_large < own + 10  # what is remembered of 7,000 more documents
    assert own_large + 2 * worker_large < 400
