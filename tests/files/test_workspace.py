"""One process works on an output at a time, whatever the others delete meanwhile; what is left over is used or refused."""

from __future__ import annotations

import fcntl
import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from whole_folders import names

from unmask.errors import CannotWriteError
from unmask.files import remove_folder, workspace


def test_the_folder_is_there_for_the_block_and_gone_after_it(tmp_path: Path) -> None:
    with workspace(tmp_path / "a" / "out") as parts:
        assert parts == tmp_path / "a" / "out.parts" and parts.is_dir()
    assert names(tmp_path / "a") == []


def test_what_a_block_that_failed_left_is_there_for_the_next(tmp_path: Path) -> None:
    with pytest.raises(KeyError), workspace(tmp_path / "out") as parts:
        (parts / "half").write_text("x")
        raise KeyError
    with workspace(tmp_path / "out") as parts:
        assert (parts / "half").read_text() == "x"
    assert names(tmp_path) == []


def test_a_block_may_delete_the_folder_itself(tmp_path: Path) -> None:
    with workspace(tmp_path / "out") as parts:
        remove_folder(parts)
    assert names(tmp_path) == []


def test_another_process_is_told_who_is_at_work(tmp_path: Path) -> None:
    script = (
        "from pathlib import Path; from unmask.files import workspace; import os\n"
        f"with workspace(Path({str(tmp_path / 'out')!r})): print(os.getpid(), flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        number = child.stdout.readline().strip()
        with pytest.raises(CannotWriteError, match=f"process {number}"), workspace(tmp_path / "out"):
            pass
        assert names(tmp_path) == ["out.parts"]
        child.communicate("\n")
    with workspace(tmp_path / "out"):
        pass


@pytest.mark.parametrize("when", ["open", "flock"])
@pytest.mark.parametrize("again", [False, True])
def test_two_never_hold_it_though_it_was_deleted_while_it_was_taken(
    when: str, again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process ends well, and maybe a third begins, between two of our steps: a lock on a deleted file is none."""
    done = []

    def meanwhile(step):  # type: ignore[no-untyped-def]
        def stepped(*given, **more):  # type: ignore[no-untyped-def]
            if not done:
                done.append(True)
                remove_folder(tmp_path / "out.parts")
                if again:
                    (tmp_path / "out.parts").mkdir()
                    (tmp_path / "out.parts" / "lock").touch()
            return step(*given, **more)

        return stepped

    if when == "open":
        module = importlib.import_module("unmask.files.workspace")  # the package's name for it is that of the function
        monkeypatch.setattr(module, "open", meanwhile(open), raising=False)
    else:
        monkeypatch.setattr(fcntl, "flock", meanwhile(fcntl.flock))
    with workspace(tmp_path / "out") as parts:
        assert done and (parts / "lock").read_text().isdigit()
        with pytest.raises(CannotWriteError, match="at work here"), workspace(tmp_path / "out"):
            pass
    assert names(tmp_path) == []


@pytest.mark.parametrize("name", ["letter.txt", "lock/"])
def test_a_folder_that_holds_something_else_is_left_alone(name: str, tmp_path: Path) -> None:
    place = tmp_path / "out.parts" / name
    place.parent.mkdir()
    place.mkdir() if name.endswith("/") else place.write_text("dear")
    with pytest.raises(CannotWriteError, match="taken"), workspace(tmp_path / "out"):
        pass
    assert place.exists()


def test_a_file_in_its_place_is_told(tmp_path: Path) -> None:
    (tmp_path / "out.parts").write_text("dear")
    with pytest.raises(CannotWriteError, match="A file stands"), workspace(tmp_path / "out"):
        pass
