"""The files of a split, in a folder laid out as data sets are on the Hugging Face Hub.

FOLDER/train.jsonl, FOLDER/train-00000-of-00002.parquet …, or the same in FOLDER/data. FOLDER/train names the split "train";
a folder with one split stands for it.
"""

from __future__ import annotations

import re
from pathlib import Path

from unmask.errors import UnmaskError

ENDINGS = (".parquet", ".jsonl", ".jsonl.gz", ".jsonl.zst", ".csv", ".csv.gz", ".csv.zst")
SHARD = re.compile(
    r"(?P<split>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})(-[0-9a-f]{16})?"
)  # older data sets end in a hash
NUMBERED = re.compile(r"\d{4,5}")  # a folder for each split, its files counted


def split_files(source: str) -> list[str]:
    """The files that a folder, or FOLDER/SPLIT, stands for, in order; [] where it is no such thing.

    UnmaskError where a folder holds several splits, where a split is there twice, and where one of its files is missing.
    """
    path = Path(source)
    if path.is_dir():
        splits = _splits(path)
        if len(splits) > 1:
            do = f"name one, e.g. {path / next(iter(splits))}"
            raise UnmaskError(f"the folder holds several splits: {', '.join(splits)}", where=source, do=do)
        files = next(iter(splits.values()), [])
    else:
        files = [] if path.exists() or not path.parent.is_dir() else _splits(path.parent).get(path.name, [])
    _require_whole(files, source)
    return [str(file) for file in files]


def _splits(folder: Path) -> dict[str, list[Path]]:
    """The files of each split, of the folder itself or else of its `data`; none of a folder that `datasets` saved."""
    if (folder / "state.json").exists() or (folder / "dataset_dict.json").exists():
        return {}
    found: dict[str, list[Path]] = {}
    for place in (folder, folder / "data"):
        for file in sorted(place.iterdir()) if not found and place.is_dir() else []:
            if file.is_file() and not file.name.startswith(".") and file.name.endswith(ENDINGS):
                found.setdefault(_split(_stem(file)), []).append(file)
    return found


def _stem(file: Path) -> str:
    return file.name.partition(".")[0]


def _split(stem: str) -> str:
    if shard := SHARD.fullmatch(stem):
        return shard["split"]
    return "" if NUMBERED.fullmatch(stem) else stem


def _require_whole(files: list[Path], source: str) -> None:
    names, stems = ", ".join(file.name for file in files), [_stem(file) for file in files]
    shards = [SHARD.fullmatch(stem) for stem in stems]
    counts = {int(shard["count"]) if shard else 0 for shard in shards}
    if counts <= {0}:
        numbers = [int(stem) for stem in stems if NUMBERED.fullmatch(stem)]
        if len(files) > 1 and len(set(numbers)) < len(files):
            raise UnmaskError(f"the split is there twice: {names}", where=source, do="name the file to read")
        if numbers[:1] == [0] and len(numbers) <= numbers[-1]:
            what = f"{len(numbers)} files of the split are there, but their numbers go up to {numbers[-1]}"
            raise UnmaskError(what, where=source, do="get the missing files, or name one file")
    elif len({shard["number"] for shard in shards if shard}) < len(files):
        raise UnmaskError(f"files of the split are there twice: {names}", where=source, do="remove one of each two")
    elif counts != {len(files)}:
        told = ", ".join(map(str, sorted(counts)))
        what = f"{len(files)} files of the split are there, but their names count {told}"
        raise UnmaskError(what, where=source, do="get the missing files, or name one file")
