"""Made-up texts, a tokenizer of letters, and what a corpus built of them holds."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers, pre_tokenizers

from unmask.text.build import BuildOptions
from unmask.text.shards import Corpus
from unmask.text.tokenizer import Tokenizer

SMALL = BuildOptions(shard_tokens=2000)

LETTERS = "abcdefghijklmnopqrstuvwxyz"

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def a_tokenizer(folder: Path, more: str = "") -> Tokenizer:
    """One token per letter, stop or hanzi of the basic plane; `more` characters make it another tokenizer."""
    pieces = SPECIALS + list(LETTERS + ".。" + more) + [f"##{letter}" for letter in LETTERS]
    pieces += [chr(code) for code in range(0x4E00, 0x9FA6)]
    backend = Backend(models.WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.add_special_tokens(SPECIALS)
    folder.mkdir(parents=True)
    backend.save(str(folder / "tokenizer.json"))
    names = {f"{kind.strip('[]').lower()}_token": kind for kind in SPECIALS}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", **names}))
    (folder / "special_tokens_map.json").write_text(json.dumps(names))
    return Tokenizer.load(folder)


def some_texts(count: int, seed: int = 0) -> list[str]:
    rng = random.Random(seed)

    def sentence() -> str:
        return " ".join("".join(rng.choices(LETTERS, k=rng.randint(2, 6))) for _ in range(rng.randint(3, 9)))

    return ["\n".join(f"{sentence()}." for _ in range(rng.randint(1, 4))) for _ in range(count)]


def write_jsonl(path: Path, texts: list[str]) -> str:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return str(path)


def manifest(folder: Path) -> dict:
    return json.loads((folder / "manifest.json").read_text())


def stored(folder: Path) -> dict[str, list[tuple[int, list[list[int]]]]]:
    """By split: the record number and the sentences (ids) of each document."""
    out = {}
    for split, counts in manifest(folder)["about"]["splits"].items():
        documents = []
        corpus = Corpus.open(folder, split) if counts["documents"] else None
        for number in range(corpus.num_documents if corpus else 0):
            texts = corpus.read(np.array([number]))
            ends = texts.sentences.tolist()
            sentences = [texts.tokens[a:b].tolist() for a, b in zip(ends, ends[1:], strict=False)]
            documents.append((corpus.origin(number)[1], sentences))
        out[split] = documents
    return out
