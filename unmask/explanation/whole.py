"""One text through everything that pre-training does with it, by the code that does it in training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from torch.overrides import TorchFunctionMode

from unmask import settings
from unmask.errors import UnmaskError
from unmask.explanation.ask import Asked, ask
from unmask.explanation.batches import Batch, make_batch, read
from unmask.explanation.numbers import forward, losses_of
from unmask.explanation.parameters import parts_of
from unmask.explanation.result import Explanation, Loss, Pieces
from unmask.explanation.sequences import sequences_of
from unmask.explanation.shapes import shapes_of, sizes_of
from unmask.road.model import Model, build, outline
from unmask.text.vocabulary import ROLES, Vocabulary
from unmask.text.words import WordSplitter

MOST_CHARACTERS = 10_000  # of a text; what comes after is left out


def explain(
    text: str,
    *,
    second: str = "",
    objective: str | None = None,
    preset: str | None = None,
    model: str | Path | None = None,
    tokenizer: str | Path | None = None,
    seed: int = 0,
    words: WordSplitter | None = None,
) -> Explanation:
    """What a network sees of `text` in pre-training, and how the loss comes about.

    `second` is another text: NSP may exchange its sentences for those of the first, and the two are padded to one length.
    `objective` is one of OBJECTIVES; left out, it is the preset's own, or "mlm". `preset` says whose shapes and parameters
    are shown; the numbers come from a small new network with the same traits. With `model`, a folder, network, numbers and
    tokenizer are its own. `tokenizer` is a folder; without one it is learned from the text. `words` says what a word is;
    left out, Chinese words are jieba's.

    Raises UnmaskError for unknown names, a text without a token, and an objective that network or tokenizer can't have.
    """
    texts = tuple(one[:MOST_CHARACTERS] for one in (text, second) if one) or (text,)
    if not texts[0].strip():
        raise UnmaskError("the text is empty", do='give a sentence, e.g. unmask explain "The cat sat on the mat."')
    asked = ask(texts, objective, preset, _path(model), _path(tokenizer), seed)
    small = build(asked.small, asked.tokenizer.vocabulary())
    source = read(texts, asked.tokenizer, words or WordSplitter("jieba"))
    batch = make_batch(asked.small, source, small.vocabulary, small.objective.prepare)
    passed = forward(small.encoder, small.objective, batch.prepared)
    losses = losses_of(passed, asked.tokenizer)
    published = _outlined(asked, small.vocabulary)
    parts = parts_of(published.encoder, published.objective)
    return Explanation(
        texts=texts,
        objective=asked.objective,
        network=asked.network,
        seed=seed,
        settings={name: settings.plain(getattr(asked.run, name)) for name in ("encoder", "objectives", "examples")},
        tokenizer=_pieces(asked),
        sequences=sequences_of(batch, passed.batch, asked.run, asked.tokenizer),
        sizes=sizes_of(published.encoder, published.objective, batch.prepared),
        shapes=shapes_of(published.encoder, published.objective, batch.prepared),
        parts=parts,
        parameters=sum(part.parameters for part in parts),
        trained=asked.trained,
        losses=losses,
        loss=passed.loss,
        notes=tuple(_notes(asked, small, batch, losses, len(text) > MOST_CHARACTERS or len(second) > MOST_CHARACTERS)),
    )


def _path(given: str | Path | None) -> Path | None:
    return None if given is None else Path(given)


def _outlined(asked: Asked, vocabulary: Vocabulary) -> Model:
    with _UndrawnWeights():
        return outline(asked.run, vocabulary)


class _UndrawnWeights(TorchFunctionMode):
    """A network without numbers needs no first ones: what draws them on the meta device takes a second to be loaded."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        given = kwargs or {}
        if getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else given["tensor"]
        return func(*args, **given)


def _pieces(asked: Asked) -> Pieces:
    tokenizer = asked.tokenizer
    special = {tokenizer.token(id): id for role in ROLES if (id := getattr(tokenizer, f"{role}_token_id")) is not None}
    return Pieces(tokenizer.kind, tokenizer.vocab_size, asked.learned, asked.where, special)


def _notes(asked: Asked, small: Model, batch: Batch, losses: Sequence[Loss], cut: bool) -> Iterator[str]:
    """What is not as in a real run, and why."""
    config, there = asked.run.encoder, asked.small.encoder
    if cut:
        yield f"Only the first {MOST_CHARACTERS:,} characters of a text are explained."
    if asked.learned:
        yield (
            f"The tokenizer was learned from this text alone ({asked.tokenizer.vocab_size} pieces), so every short word has "
            "a piece of its own. --tokenizer FOLDER takes a real one."
        )
    if not asked.trained:
        yield (
            f"The numbers come from a new network with the traits of {asked.network}, but small: hidden_size "
            f"{there.hidden_size}, {there.num_hidden_layers} layers, {there.vocab_size:,} pieces. It knows nothing yet, so "
            f"its loss is about what guessing costs (ln V = ln {there.vocab_size:,}). --model FOLDER takes real weights."
        )
    yield from small.notes
    if config.type_vocab_size < 2:
        yield "This network has no segments: token_type_ids are all 0, and it does not read them."
    if not config.position_rows:
        kind = config.positions.kind.replace("_", " ")
        yield f"This network has no table of positions: position_ids count tokens, and attention uses them ({kind})."
    if config.causal:
        yield "Each token sees itself and those before it: scores with later ones do not count."
    if config.local_attention:
        every, reach = config.global_attn_every_n_layers, config.local_attention // 2
        yield f"Layers 1, {1 + every}, {1 + 2 * every} … see the whole sequence, the others {reach} tokens on each side."
    if asked.objective == "nsp" and len(batch.source.document_tokens()) < 2:
        yield "With one text no B can come from elsewhere, so the label is 0. --second TEXT gives another text."
    for loss in losses:
        if not loss.targets:
            yield f"The draw chose no target for {loss.name}: the text is short. Another --seed draws anew."
