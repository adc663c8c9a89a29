"""What a run's folder says of its settings and its corpus."""

from __future__ import annotations

from pathlib import Path

from unmask import settings
from unmask.config import RunConfig
from unmask.errors import UnmaskError
from unmask.text.shards import Corpus
from unmask.train.journal import read_run


def read_settings(folder: Path) -> RunConfig:
    """The settings of the run in `folder`."""
    try:
        data = read_run(folder)
    except (OSError, ValueError) as error:
        raise UnmaskError(
            f"run.json can't be read: {error}", where=str(folder), do="restore it, or begin a new run"
        ) from None
    if "run" not in data:
        raise UnmaskError(
            "there is no run in this folder", where=str(folder), do="check the path; a run's folder holds run.json"
        )
    return settings.parse(RunConfig, data["run"], where=str(folder / "run.json"))


def require_same_corpus(folder: Path, corpus: Corpus, *, everything: bool = False) -> None:
    """Refuses a corpus that was rebuilt since the run began, with another tokenizer or, for `everything`, in any way."""
    then = read_run(folder).get("corpus", {})
    if not then:
        return
    changed = "its tokenizer changed" if then["tokenizer"] != corpus.about["tokenizer"] else ""
    if everything and not changed and then["shards_sha256"] != corpus.fingerprint:
        changed = "its shards changed"
    if changed:
        raise UnmaskError(
            f"the corpus is not the one this run began with: {changed}",
            where=str(corpus.folder),
            do="put the old corpus back, or begin a new run with --start-from",
        )
