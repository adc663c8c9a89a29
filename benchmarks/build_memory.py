"""Speed and memory of building a corpus: writes a large text from small ones, builds it, watches all processes.

    python benchmarks/build_memory.py SOURCE.jsonl.gz ... --megabytes 1000 --workers 2

Each round through the sources shuffles the words of every document, so that little of it is a duplicate.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers, pre_tokenizers, trainers

from unmask.text.build import build_corpus
from unmask.text.reader import ReadOptions, ReadReport, read_documents
from unmask.text.tokenizer import Tokenizer

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def texts(sources: list[str], megabytes: int) -> Iterator[str]:
    """Documents until there are so many bytes; the first round is as it is."""
    size = 0
    for number in itertools.count():
        for document in read_documents(sources, ReadOptions(), ReadReport()):
            words = document.text.split(" ") if " " in document.text[:200] else list(document.text)
            if number:
                random.Random(f"{number} {document.record}").shuffle(words)
            text = (" " if " " in document.text[:200] else "").join(words)
            yield text
            size += len(text.encode())
            if size > megabytes * 1e6:
                return


def train(some: Iterator[str], folder: Path) -> Tokenizer:
    backend = Backend(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer, backend.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    backend.train_from_iterator(some, trainers.WordPieceTrainer(vocab_size=8000, special_tokens=SPECIALS))
    folder.mkdir()
    backend.save(str(folder / "tokenizer.json"))
    return Tokenizer.load(folder)


def memory(pids: list[int]) -> int:
    """Bytes resident in these processes, pages of files included; shared pages count once for each of them."""
    total = 0
    for pid in pids:
        try:
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError):
            continue
    return total


class Watch(threading.Thread):
    """Peaks of this process and of all its children, looked at twenty times a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.own = self.total = self.child = 0
        self.stop = threading.Event()

    def run(self) -> None:
        me = os.getpid()
        while not self.stop.wait(0.05):
            tasks = [task / "children" for task in Path(f"/proc/{me}/task").iterdir()]
            children = [int(pid) for task in tasks if task.exists() for pid in task.read_text().split()]
            self.own = max(self.own, memory([me]))
            self.child = max([self.child, *(memory([child]) for child in children)])
            self.total = max(self.total, memory([me, *children]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+")
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=None, help="where to work; default: a temporary folder")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = Path(name)
        tokenizer = train(itertools.islice(texts(args.sources, 5), 2000), folder / "tokenizer")
        with open(folder / "text.jsonl", "w") as file:
            for text in texts(args.sources, args.megabytes):
                file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
        del text
        stages: dict[str, tuple[float, int]] = {}
        watch = Watch()
        begin = time.perf_counter()

        def progress(what: str, done: float, total: float | None) -> None:
            stages[what] = time.perf_counter() - begin, watch.total >> 20

        watch.start()
        about = build_corpus(
            [str(folder / "text.jsonl")], folder / "corpus", tokenizer, workers=args.workers, progress=progress
        )
        seconds = time.perf_counter() - begin
        watch.stop.set()
        size = (folder / "text.jsonl").stat().st_size
    print(f"{size / 1e6:.0f} MB in {seconds:.1f} s: {size / 1e6 / seconds:.2f} MB/s")
    print(f"peak MiB: all {watch.total >> 20}, this process {watch.own >> 20}, largest worker {watch.child >> 20}")
    for what, (when, peak) in stages.items():
        print(f"  {what}: ended at {when:.1f} s, peak until then {peak} MiB")
    print(json.dumps({"splits": about["splits"], "duplicates": about["report"]["duplicates"]}))


if __name__ == "__main__":
    main()
