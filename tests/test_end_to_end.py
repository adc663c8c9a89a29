"""The whole road on real text: tokenizer, shards, whole-word masking, training, and the same answers in transformers."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rjieba
import torch
from small_runs import ignore, result
from transformers import AutoModelForPreTraining, AutoTokenizer

from unmask import recipes, road
from unmask.batch import PackedBatch
from unmask.config import BatchSize, EncoderConfig, Keeping, Machine, MaskedTokens, RunConfig, Steps
from unmask.hub.files import build_encoder, load_model
from unmask.hub.masked_model import load_masked_model
from unmask.loader import Batches, Cursor
from unmask.nn.heads import PairHead
from unmask.objectives.masked import MaskedTokenObjective
from unmask.text.build import BuildOptions, build_corpus
from unmask.text.shards import Corpus
from unmask.text.tokenizer import Tokenizer
from unmask.text.train_tokenizer import TrainOptions, train
from unmask.text.words import WordSplitter

pytestmark = pytest.mark.slow

HANZI = "\u4e00", "\u9fff"


@dataclass(frozen=True)
class Walked:
    texts: list[str]
    corpus: Path
    run: Path
    settings: RunConfig


def texts_of(shared: Path, name: str, count: int, length: int) -> list[str]:
    with gzip.open(shared / "data" / "corpora" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line)["text"][:length] for line in islice(lines, count)]


def walk(folder: Path, texts: list[str], tokenizer: TrainOptions, words: WordSplitter, recipe: RunConfig) -> Walked:
    """Twenty steps of a tiny encoder, with everything else as the recipe has it."""
    source = folder / "texts.jsonl"
    source.write_text("".join(json.dumps({"text": t}, ensure_ascii=False) + "\n" for t in texts), encoding="utf-8")
    learned, _ = train(texts, tokenizer)
    options = BuildOptions(words=words, heldout_share=0.05)
    build_corpus([str(source)], folder / "corpus", learned, options, workers=1)
    run = road.fit_to_corpus(
        replace(
            recipe,
            corpus=str(folder / "corpus"),
            encoder=EncoderConfig(
                vocab_size=tokenizer.vocab_size, hidden_size=64, num_hidden_layers=2, num_attention_heads=2,
                intermediate_size=128,
            ),
            optimizer=replace(recipe.optimizer, learning_rate=5e-3),
            batch=BatchSize(tokens=2048),
            until=Steps(steps=20),
            keeping=Keeping(evaluations=2, evaluation_tokens=4096),
            machine=Machine(threads=1, workers=0),
        )
    )  # fmt: skip
    assert road.pretrain(run, folder / "run", view=ignore).finished
    return Walked(texts, folder / "corpus", folder / "run", run)


@pytest.fixture(scope="module")
def chinese(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Walked:
    texts = texts_of(shared, "zh_wiki_cmrc_train", 300, 400)
    options = TrainOptions(kind="characters", vocab_size=6000, min_frequency=1)
    return walk(tmp_path_factory.mktemp("zh"), texts, options, WordSplitter("jieba"), recipes.bert_chinese())


@pytest.fixture(scope="module")
def english(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Walked:
    texts = texts_of(shared, "en_wiki_squad_articles", 60, 4000)
    recipe = replace(recipes.bert(), objectives=(MaskedTokens(unit="word"), *recipes.bert().objectives[1:]))
    options = TrainOptions(kind="bpe", vocab_size=1000)
    return walk(tmp_path_factory.mktemp("en"), texts, options, WordSplitter(), recipe)


@pytest.fixture(params=["chinese", "english"])
def walked(request: pytest.FixtureRequest) -> Walked:
    found: Walked = request.getfixturevalue(request.param)
    return found


def test_the_loss_falls_and_no_token_of_its_own_text_is_unknown(walked: Walked) -> None:
    found = result(walked.run)
    for kind in ("mlm", "nsp"):
        assert found["last"]["losses"][kind] < found["first"]["losses"][kind] + 0.02, kind
    assert found["last"]["losses"]["mlm"] < found["first"]["losses"]["mlm"] - 0.5
    corpus = Corpus.open(walked.corpus, "train")
    assert corpus.about["report"]["text"]["unknown_token_share"] == 0
    assert corpus.token_counts()[corpus.vocabulary.unk_token_id] == 0
    splits, dropped = corpus.about["splits"], corpus.about["report"]["duplicates"]
    kept = splits["train"]["documents"] + splits["heldout"]["documents"]
    assert kept + dropped["exact"] + dropped["near"] == len(walked.texts) and kept > 0.8 * len(walked.texts)


def masked_words(walked: Walked, batches: int = 20) -> list[tuple[list[str], int]]:
    """Each word of these batches as the run itself masks them: its tokens, and how many of them are targets."""
    corpus, tokenizer = Corpus.open(walked.corpus, "train"), Tokenizer.load(walked.corpus / "tokenizer")
    model = road.build(walked.settings, corpus.vocabulary)
    stream = Batches(corpus, walked.settings.examples, corpus.vocabulary, model.objective.prepare, 0, 2048)
    found = []
    for batch, _ in islice(stream.since(Cursor()), batches):
        where, value = batch.labels["mlm"]
        ids = batch.input_ids.index_copy(0, where, value)
        chosen = torch.zeros(batch.num_tokens, dtype=torch.bool)
        chosen[where] = True
        special = torch.isin(ids, torch.tensor(corpus.vocabulary.special_ids))
        begins = batch.word_starts | special
        begins[batch.starts[:-1].long()] = True
        edges = [*begins.nonzero().flatten().tolist(), batch.num_tokens]
        for begin, end in zip(edges, edges[1:], strict=False):
            if not special[begin]:
                found.append(([tokenizer.token(i) for i in ids[begin:end].tolist()], int(chosen[begin:end].sum())))
    return found


def test_B085_words_are_masked_whole_or_not_at_all(walked: Walked) -> None:
    words = masked_words(walked)
    long = [(tokens, hits) for tokens, hits in words if len(tokens) > 1]
    assert len(long) > 1000 and all(hits in (0, len(tokens)) for tokens, hits in long)
    assert sum(hits > 0 for _, hits in long) > 100
    share = sum(hits for _, hits in words) / sum(len(tokens) for tokens, _ in words)
    assert abs(share - 0.15) < 0.01


def test_chinese_words_are_those_of_the_segmenter(chinese: Walked) -> None:
    """Sentence by sentence against jieba itself, where each token is one character."""
    corpus, tokenizer = Corpus.open(chinese.corpus, "train"), Tokenizer.load(chinese.corpus / "tokenizer")
    texts = corpus.read(np.arange(100))
    segmenter, compared = rjieba.Jieba(), 0
    for begin, end in zip(texts.sentences.tolist(), texts.sentences.tolist()[1:], strict=False):
        characters = [tokenizer.token(i) for i in texts.tokens[begin:end].tolist()]
        if not all(len(c) == 1 and HANZI[0] <= c <= HANZI[1] or c in "，。、；：？！" for c in characters):
            continue
        wanted = np.zeros(end - begin, bool)
        wanted[np.cumsum([0, *map(len, segmenter.cut("".join(characters)))])[:-1]] = True
        assert texts.word_starts[begin:end].tolist() == wanted.tolist(), "".join(characters)
        compared += 1
    assert compared > 100


def test_chinese_words_of_several_hanzi_are_masked_and_hanzi_are_tokens(chinese: Walked) -> None:
    long = [t for t, hits in masked_words(chinese) if hits > 1 and all(HANZI[0] <= c <= HANZI[1] for c in t)]
    assert len({"".join(word) for word in long}) > 100
    counts = Corpus.open(chinese.corpus, "train").token_counts()
    tokenizer = Tokenizer.load(chinese.corpus / "tokenizer")
    used = [tokenizer.token(i) for i in np.flatnonzero(counts)]
    assert not [piece for piece in used if sum(HANZI[0] <= c <= HANZI[1] for c in piece) > 1]


def test_english_words_hold_all_their_bytes(english: Walked) -> None:
    """White space (Ġ) before a word belongs to it; after its first letter there is none."""
    words = ["".join(tokens) for tokens, _ in masked_words(english)]
    assert not [word for word in words if "Ġ" in word.lstrip("Ġ")]
    assert sum(len(tokens) > 2 for tokens, _ in masked_words(english)) > 500


def pair_head(loaded: Any) -> PairHead:
    head = PairHead(loaded.config)
    head.load_state_dict(loaded.heads["nsp"])
    return head.eval()


def test_transformers_gives_the_same_ids_and_the_same_logits(walked: Walked) -> None:
    """In one and the same folder, as it is."""
    folder = walked.run / "model"
    ours, loaded = load_masked_model(folder), load_model(folder)
    theirs = AutoModelForPreTraining.from_pretrained(folder, local_files_only=True, attn_implementation="eager").eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    texts = [text[:length] for text, length in zip(walked.texts[:24], [40, 80, 120] * 8, strict=True)]
    vocabulary = ours.tokenizer.vocabulary()
    wanted = [
        [vocabulary.cls_token_id, *encoded.ids.tolist(), vocabulary.sep_token_id]
        for encoded in ours.tokenizer.encode(texts)
    ]
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    mask = batch["attention_mask"].bool()
    assert [row[real].tolist() for row, real in zip(batch["input_ids"], mask, strict=True)] == wanted
    packed = PackedBatch.pack(wanted)
    with torch.inference_mode():
        out = theirs(batch["input_ids"], attention_mask=batch["attention_mask"])
        layers = build_encoder(loaded).layers(packed)
        assert isinstance(ours.mlm, MaskedTokenObjective)
        mlm = ours.mlm.logits(ours.encoder, layers, packed, torch.arange(packed.num_tokens))
        nsp = pair_head(loaded)(layers[-1][packed.starts[:-1].long()])
    assert float((mlm - out.prediction_logits[mask]).abs().max()) < 1e-5
    assert float((nsp - out.seq_relationship_logits).abs().max()) < 1e-5
    assert tokenizer.mask_token_id == vocabulary.mask_token_id and tokenizer.pad_token_id == vocabulary.pad_token_id
    assert tokenizer.model_max_length == loaded.config.max_position_embeddings


def test_transformers_decodes_what_it_was_given(walked: Walked) -> None:
    tokenizer = AutoTokenizer.from_pretrained(walked.run / "model", local_files_only=True)
    text = walked.texts[0][:60]
    back = tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True)
    assert "".join(back.split()) == "".join(text.split())
