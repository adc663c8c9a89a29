"""The model that a fine-tuning run keeps, found in the run's folder and copied out of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from unmask.errors import UnmaskError
from unmask.files import MANIFEST, write_folder
from unmask.hub.files import FORMAT, load_model
from unmask.train.journal import read_run


def export(folder: Path, out: Path, checkpoint: str = "") -> None:
    """`kept_model`, whole and checked, as the folder `out`; an existing model folder is replaced."""
    model = kept_model(folder, checkpoint)
    load_model(model)
    with write_folder(out, replace=True, about=FORMAT) as temporary:
        shutil.copytree(model, temporary, dirs_exist_ok=True, ignore=shutil.ignore_patterns(MANIFEST))


def model_folder(folder: Path) -> Path:
    """The model folder that `folder` is, or the one that it keeps as a fine-tuning run.

    Raises UnmaskError where there is no such folder, and for a run of another kind or several, naming the folder to take.
    """
    if not folder.exists():
        do = "check the path; nothing is downloaded: `hf download OWNER/NAME --local-dir FOLDER` gets a model"
        raise UnmaskError("there is no such folder", where=str(folder), do=do)
    if any((folder / name).exists() for name in ("config.json", "modules.json")):
        return folder
    if is_tuning(folder):
        return kept_model(folder)
    if (folder / "run.json").exists():
        do = (
            f"name its model, {folder / 'model'}"
            if (folder / "model").is_dir()
            else "make one of it with `unmask export`"
        )
        raise UnmaskError("this is a run, not a model", where=str(folder), do=do)
    return folder


def kept_model(folder: Path, checkpoint: str = "") -> Path:
    """The model folder of a fine-tuning run: of its best checkpoint on the dev set; without a dev set, of its last.

    Raises UnmaskError for another checkpoint, of which a run keeps no model, and for a run that has not ended.
    """
    run = read_run(folder)
    which = "best" if run["run"].get("dev") else "last"
    if checkpoint not in ("", which):
        raise UnmaskError(
            f"a fine-tuning run keeps the model of its {which} checkpoint, and of no other",
            where=str(folder),
            do=f"leave --checkpoint away, or give {which}",
        )
    if not (folder / "model").is_dir():
        raise UnmaskError(
            f"this fine-tuning run has no model yet: {_ended(run)}",
            where=str(folder),
            do="go on with it: give the same `unmask finetune` command again",
        )
    return folder / "model"


def is_tuning(folder: Path) -> bool:
    """Whether the run in `folder` fine-tunes. False too for what is no run, and for a run.json that can't be read.

    Raises UnmaskError for a folder of several such runs.
    """
    if (folder / "run.json").exists():
        try:
            run = read_run(folder).get("run")
        except (OSError, ValueError, AttributeError):
            return False
        return isinstance(run, dict) and "task" in run
    if inside := [path.parent.name for path in sorted(folder.glob("*/run.json")) if is_tuning(path.parent)]:
        named = _best(folder) or inside[0]
        raise UnmaskError(
            f"this folder holds {len(inside)} run{'s' * (len(inside) > 1)}: {', '.join(inside[:9])}",
            where=str(folder),
            do=f"name one of them, {folder / named}{', the best' if _best(folder) else ''}",
        )
    return False


def _ended(run: dict[str, Any]) -> str:
    result = run.get("result", {})
    return f"it {result.get('status', 'never began')}{', ' + result['why'] if result.get('why') else ''}"


def _best(folder: Path) -> str:
    """Of the trials of a search; "" elsewhere."""
    try:
        found = json.loads((folder / "search.json").read_text(encoding="utf-8"))["best"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return str(found)
