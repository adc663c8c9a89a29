"""Every family in English and Chinese, from the command line with one preset word: trained, taken on, opened elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
import transformers as hf
from cli.commands import unmask
from every_family import (
    FAMILIES,
    LANGUAGES,
    SHORT,
    TINY,
    Family,
    Language,
    family_of,
    losses,
    make_corpus,
    run,
    settings,
    texts_of,
)
from hub.theirs import opened, our_outputs, require_equal, target_side, their_outputs

from unmask import presets
from unmask.batch import PackedBatch
from unmask.hub.files import load_model
from unmask.text.shards import Corpus
from unmask.text.tokenizer import Tokenizer

LINES: dict[Language, tuple[str, str, str]] = {
    "en": ("The people of the city", "saw the", "of history."),
    "zh": ("国家保护公民的", "权利，", "依照法律规定。"),
}


@dataclass(frozen=True)
class Trained:
    family: Family
    language: Language
    corpus: Path
    run: Path

    @property
    def model(self) -> Path:
        return self.run / "model"


Corpora = Callable[[str, Language], Path]


@pytest.fixture(scope="session")
def corpora(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Corpora:
    """The corpus of a kind of tokenizer, made when it is first asked for; families of one kind share it."""
    made: dict[tuple[str, Language], Path] = {}

    def corpus(tokenizer: str, language: Language) -> Path:
        key = (tokenizer, language)
        if key not in made:
            folder = tmp_path_factory.mktemp(f"{tokenizer}-{language}")
            made[key] = make_corpus(folder, texts_of(shared, language), tokenizer, language)
        return made[key]

    return corpus


@pytest.fixture(scope="module", params=[(name, language) for name in FAMILIES for language in LANGUAGES], ids="-".join)
def trained(request: pytest.FixtureRequest, corpora: Corpora, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """`unmask pretrain --preset NAME CORPUS` at toy size."""
    name, language = request.param
    family = family_of(name, language)
    found = Trained(family, language, corpora(family.tokenizer, language), tmp_path_factory.mktemp(name) / "run")
    small = settings(*TINY, *SHORT, *family.settings)
    run("pretrain", "--preset", family.preset, found.corpus, "--steps", 20, "--out", found.run, *small)
    return found


def test_every_preset_belongs_to_a_family_that_is_tried() -> None:
    tried = {presets.preset(family.preset).__module__ for family in FAMILIES.values()}
    assert tried == {presets.preset(name).__module__ for name in presets.names()}


def test_one_preset_word_trains_what_the_family_learns_and_every_loss_falls(trained: Trained) -> None:
    """But for pairs: 20 steps are too few to tell them apart, and chance is where they stay. An ELMo begins with the
    frequencies of words, which the others learn first."""
    before, after = losses(trained.run)
    assert set(after) == set(trained.family.losses)
    for name in after:
        if name in ("nsp", "sop"):
            assert abs(after[name] - before[name]) < 0.05
        else:
            assert after[name] < before[name] - (0.2 if name not in ("forward", "backward") else 0.005), name


def test_no_character_of_its_own_text_is_unknown(trained: Trained) -> None:
    corpus = Corpus.open(trained.corpus, "train")
    assert corpus.about["report"]["text"]["unknown_token_share"] == 0
    unknown = corpus.vocabulary.unk_token_id
    assert unknown is None or unknown == corpus.vocabulary.sep_token_id or corpus.token_counts()[unknown] == 0


def framed(tokenizer: Tokenizer, text: str) -> list[int]:
    """As each text stands in a batch; T5 has no [CLS], and GPT-2 reads a stream without frames."""
    cls, sep = tokenizer.vocabulary().cls_token_id, tokenizer.vocabulary().sep_token_id
    ids = tokenizer.encode([text])[0].ids.tolist()
    return ids if tokenizer.token(sep) == "<|endoftext|>" else [*([] if cls is None else [cls]), *ids, sep]


def test_AutoTokenizer_gives_our_ids_and_frame(trained: Trained) -> None:
    theirs, ours = hf.AutoTokenizer.from_pretrained(trained.model), Tokenizer.load(trained.model)
    for text in ("".join(LINES["en"]), "".join(LINES["zh"]), "It doesn't cost 1,000 €: 北京 café."):
        assert theirs(text)["input_ids"] == framed(ours, text)
        assert theirs(text, add_special_tokens=False)["input_ids"] == ours.encode([text])[0].ids.tolist()


def test_the_folder_opens_in_transformers_and_answers_as_with_us(trained: Trained) -> None:
    """Nothing missing, nothing unexpected; what transformers has no class for opens with us."""
    family, loaded = trained.family, load_model(trained.model)
    assert json.loads((trained.model / "config.json").read_text())["architectures"] == [family.architecture]
    assert set(loaded.heads) == set(family.heads or family.losses) - ({"mlm"} if family.fills == "generator" else set())
    assert not loaded.unexpected
    known = replace(loaded, heads={kind: loaded.heads[kind] for kind in family.same})
    tokenizer = Tokenizer.load(trained.model)
    batch = PackedBatch.pack([framed(tokenizer, " ".join(LINES[trained.language][:n])) for n in (1, 3, 2)])
    if "infill" in family.same:
        batch = batch.with_(decoder=target_side([4, 2, 7], loaded.config.pad_token_id)[0])
    ours = our_outputs(known, batch)
    assert all(torch.isfinite(tensor).all() for tensor in ours.values())
    if not family.auto:
        return
    for kind in (getattr(hf, family.auto), getattr(hf, family.architecture)):
        model = opened(kind, trained.model)
        assert type(model).__name__ == family.architecture
    require_equal(ours, their_outputs(model, family.same, batch))
    if family.fills == "generator":
        opened(hf.AutoModelForMaskedLM, trained.model / "generator")


def test_training_goes_on_from_the_folder_where_it_ended(trained: Trained, tmp_path: Path) -> None:
    """Heads, generator and disentangled tables included: the first measurement is the last one of the run before."""
    words = ("--start-from", trained.model, "--steps", 2, "--out", tmp_path / "run", *settings(*SHORT))
    run("pretrain", trained.family.recipe, "--corpus", trained.corpus, *words)
    assert losses(tmp_path / "run")[0] == pytest.approx(losses(trained.run)[1], rel=1e-4)


def test_masks_are_filled_by_what_was_trained_to_and_refused_in_words_by_the_rest(trained: Trained) -> None:
    tokenizer, folder = Tokenizer.load(trained.model), trained.model
    mask = "[MASK]" if tokenizer.mask_token_id is None else tokenizer.token(tokenizer.mask_token_id)
    text = f"{LINES[trained.language][0]} {mask} {LINES[trained.language][2]}"
    if trained.family.fills != "model":
        refused = unmask("fill", folder, text)
        assert refused.code == 2 and "no whole MLM head" in refused.err and len(refused.error()) <= 3
        folder = folder / "generator"
        assert (
            folder.is_dir() == (trained.family.fills == "generator") == (str(folder) in refused.err.replace("\n", ""))
        )
    if trained.family.fills:
        rows = [line.split("|")[2] for line in run("fill", folder, text, "--top", 4).splitlines() if "| 0." in line]
        assert len(rows) == 4 and 0 < sum(map(float, rows)) <= 1
