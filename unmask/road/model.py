"""The network of a run: fitted to its corpus, built, and started from new weights or from a model's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from unmask.batch import PackedBatch
from unmask.config import BidirectionalWords, ReplacedTokens, RunConfig
from unmask.errors import UnmaskError
from unmask.hub.files import LoadedModel, load_model
from unmask.hub.restore import restore_into
from unmask.nn.characters import token_kinds
from unmask.nn.cost import TRAINING, encoder_flops
from unmask.nn.encoder import Encoder
from unmask.nn.initial import initialise
from unmask.objectives.base import Joint
from unmask.objectives.bilm import BidirectionalWordObjective
from unmask.objectives.build import build_objective
from unmask.objectives.masked import MaskedTokenObjective
from unmask.objectives.replaced import ReplacedTokenObjective
from unmask.road.phases import phases_of, require_same_shapes
from unmask.road.static_table import begin_with_vectors
from unmask.text.examples import require_tokens
from unmask.text.shards import Corpus
from unmask.text.tokenizer import Tokenizer
from unmask.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class Model:
    """What a run trains, and the vocabulary its numbers stand for."""

    encoder: Encoder
    objective: Joint
    vocabulary: Vocabulary
    notes: tuple[str, ...] = ()  # what of the model it starts from was not there, or not used

    def training_flops(self, batch: PackedBatch) -> float:
        """Arithmetic of a training step on a prepared batch."""
        config = self.encoder.config
        reading = None if batch.read is None else len(batch.read)
        own = encoder_flops(config, batch.layout.lengths, until=self.objective.depth(config), reading=reading)
        return TRAINING * (own + self.objective.flops(config, batch))

    def know_words(self, corpus: Corpus) -> None:
        """Tells a network of words which tokens begin one, and its objective the frequent words, where it has none yet.

        UnmaskError for a tokenizer that does not tell.
        """
        if self.encoder.words is None:
            return
        kinds_V = token_kinds(Tokenizer.load(corpus.tokenizer_folder))
        self.encoder.words.tell(kinds_V)
        for part in self.objective.modules():
            if isinstance(part, BidirectionalWordObjective):
                part.tell(kinds_V)
                part.know_words(corpus)

    def know_frequencies(self, corpus: Corpus) -> None:
        """Tells new MLM heads that want it how often each token occurs in the corpus."""
        for part in self.objective.modules():
            if isinstance(part, MaskedTokenObjective) and part.goal.frequency_bias:
                part.know_frequencies(corpus.token_counts())


def fit_to_corpus(run: RunConfig) -> RunConfig:
    """The run with the encoder that its corpus, or the model it starts from, asks for.

    Raises UnmaskError where they disagree, and for phases or objectives that this network or tokenizer can't have.
    """
    if not run.corpus:
        raise UnmaskError("the run names no corpus", do="give --corpus FOLDER (made by `unmask corpus build`)")
    corpus = Corpus.open(run.corpus, "train", verify=False)
    vocabulary = corpus.vocabulary
    if run.start_from:
        fitted = _with_model(run, _model_for(corpus, Path(run.start_from)))
    else:
        pad = vocabulary.pad_token_id or 0  # where there is no padding token, nothing is ever padded
        fitted = replace(run, encoder=replace(run.encoder, vocab_size=vocabulary.size, pad_token_id=pad))
    parts = phases_of(fitted)
    for part in parts:
        require_tokens(part.examples, vocabulary)
    require_same_shapes(run, [_shapes(outline(part, vocabulary)) for part in parts])
    return fitted


def build(run: RunConfig, vocabulary: Vocabulary, *, start: bool = True) -> Model:
    """The network of a run with its first weights: drawn from the seed, its token table begun with static vectors if that is
    asked for, or taken from the model it starts from.

    Without `start` neither is looked at: the weights of a checkpoint will replace these.
    """
    model = _assemble(run, vocabulary)
    encoder, objective = model.encoder, model.objective
    draw = torch.Generator().manual_seed(run.seed)
    for module in (encoder, objective):
        initialise(module, run.encoder, draw)
    for part in objective.modules():
        if isinstance(part, ReplacedTokenObjective):
            part.start(encoder)
    notes = _start_from(run, encoder, objective) if run.start_from and start else ()
    if run.embeddings_from and start:
        tokenizer = Tokenizer.load(Corpus.open(run.corpus, "train", verify=False).tokenizer_folder)
        notes = (begin_with_vectors(encoder, tokenizer, Path(run.embeddings_from)),)
    return replace(model, notes=notes)


def outline(run: RunConfig, vocabulary: Vocabulary) -> Model:
    """The network without numbers in it: sizes only, whatever the sizes."""
    with torch.device("meta"):
        return _assemble(run, vocabulary)


def _assemble(run: RunConfig, vocabulary: Vocabulary) -> Model:
    """Generators and decoders are parts of objectives, and have the run's dropout too."""
    trained = replace(run.encoder, hidden_dropout_prob=run.dropout, attention_probs_dropout_prob=run.dropout)
    return Model(Encoder(trained), build_objective(trained, run.objectives, vocabulary), vocabulary)


def _shapes(model: Model) -> dict[str, tuple[int, ...]]:
    parts = {"encoder": model.encoder, "objective": model.objective}
    return {
        f"{name}.{key}": tuple(tensor.shape)
        for name, part in parts.items()
        for key, tensor in part.state_dict().items()
    }


def _model_for(corpus: Corpus, folder: Path) -> LoadedModel:
    """The encoder of the model to start from; refuses a model whose ids mean other tokens than the corpus'."""
    loaded = load_model(folder)
    if loaded.tokenizer_folder is not None:
        same = Tokenizer.load(loaded.tokenizer_folder).pieces() == Tokenizer.load(corpus.tokenizer_folder).pieces()
    else:
        same = loaded.config.vocab_size >= corpus.vocabulary.size
    if not same:
        raise UnmaskError(
            f"the corpus was made with another tokenizer ({corpus.vocabulary.size:,} tokens) than the model to start from",
            where=str(folder),
            do=f"build the corpus with the model's: --tokenizer {folder}; to add tokens, use `unmask tokenizer extend --model`",
        )
    return loaded


def _with_model(run: RunConfig, loaded: LoadedModel) -> RunConfig:
    """The run with the encoder of the model it starts from, and a generator and a table of words of that model's size.

    UnmaskError where the model can't do what the run asks.
    """
    goals = run.objectives
    if loaded.generator_folder is not None:
        size = load_model(loaded.generator_folder).config
        width = size.hidden_size / loaded.config.hidden_size
        depth = size.num_hidden_layers / loaded.config.num_hidden_layers
        goals = tuple(
            replace(goal, generator_width=width, generator_depth=depth) if isinstance(goal, ReplacedTokens) else goal
            for goal in goals
        )
    if (words := loaded.heads.get("bilm", {}).get("words")) is not None:
        goals = tuple(
            replace(goal, max_words=len(words)) if isinstance(goal, BidirectionalWords) else goal for goal in goals
        )
    try:
        return replace(run, encoder=loaded.config, objectives=goals)
    except ValueError as error:
        raise UnmaskError(
            f"the model to start from does not fit this run: {error}",
            where=run.start_from,
            do="choose the recipe of the model's family, or shorter examples with --set examples.max_length=…",
        ) from None


def _start_from(run: RunConfig, encoder: Encoder, objective: Joint) -> tuple[str, ...]:
    """Takes over a folder's weights; names the tensors it lacks and those that a pre-training model has no use for."""
    loaded = load_model(Path(run.start_from))
    new = restore_into(encoder, objective, loaded)
    found = (("begins anew", new), ("is not used", loaded.unexpected))
    return tuple(f"{run.start_from}: {', '.join(names)} {what}" for what, names in found if names)
