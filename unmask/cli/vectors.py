"""`unmask vectors`: static word vectors, Word2Vec and GloVe: train, look up, measure, convert."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from unmask.cli.options import Field, Segmenter, Separator, Set, SkipBad, Sources, UserWords, command
from unmask.errors import UnmaskError

if TYPE_CHECKING:
    from unmask.cli.console import Console
    from unmask.config.static import Glove, Word2Vec
    from unmask.static.learn import Learned
    from unmask.static.vectors import Vectors
    from unmask.text.documents import ReadReport
    from unmask.train.signals import StopRequest

app = typer.Typer(no_args_is_help=True, help="Word vectors: train Word2Vec or GloVe, look up, measure, convert.")

MODELS = ("skipgram", "cbow", "glove")
FEW = 2_000_000  # words of all epochs, below which vectors are mostly chance
At = Annotated[
    Path, typer.Argument(metavar="VECTORS", help="A folder of unmask's, or a file of word2vec, GloVe or fastText.")
]
Count = Annotated[int, typer.Option("--count", "-k", min=1, help="How many answers.")]
Limit = Annotated[int, typer.Option("--limit", min=0, help="Take the most frequent words only; 0 takes all.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@app.command()
def train(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="skipgram, cbow or glove.")],
    sources: Sources,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the vectors.", show_default=False)],
    dimension: Annotated[int, typer.Option("--dimension", "-d", min=1, help="Numbers of a vector.")] = 100,
    epochs: Annotated[
        int, typer.Option("--epochs", min=0, help="Passes over the text.", show_default="5, of glove 25")
    ] = 0,
    min_count: Annotated[int, typer.Option("--min-count", min=1, help="Rarer words get no vector.")] = 5,
    rule: Annotated[
        str,
        typer.Option("--words", help="words finds them in running text; spaces takes what stands between white space."),
    ] = "words",
    keep_case: Annotated[bool, typer.Option("--keep-case", help="Tell The from the.")] = False,
    segmenter: Segmenter = "none",
    user_words: UserWords = None,
    threads: Annotated[
        int, typer.Option("--threads", min=0, help="0 takes every core; with 1 the result is always the same.")
    ] = 0,
    settings: Set = None,
    field: Field = "",
    separator: Separator = "line",
    skip_bad: SkipBad = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace vectors that are there.")] = False,
) -> None:
    """Train word vectors on text, or on a corpus of `unmask corpus build`. Interrupted, the same command goes on.

    Other settings go by --set: window, negatives, loss=hierarchical, subsample, learning_rate, ngrams.buckets=200000 (vectors
    for unknown words), x_max, words.max_words, seed.

    Example: unmask vectors train skipgram notes/ --out vectors
    """
    from unmask.cli.console import Console
    from unmask.static.learn import learn
    from unmask.static.split import Splitting
    from unmask.text.documents import ReadOptions
    from unmask.text.workers import available_cores
    from unmask.train.signals import StopRequest

    chosen = _settings(model, dimension, epochs, min_count, settings or [])
    splitting = Splitting(
        rule=cast(Literal["words", "spaces"], rule), lowercase=not keep_case, words=_words(segmenter, user_words)
    )
    options = ReadOptions(field=field or None, separator=separator, skip_bad=skip_bad, max_bytes=2**31)
    request = StopRequest()
    with Console() as console:
        learned = learn(
            sources, out, chosen, splitting, options,
            threads=threads or available_cores(), overwrite=overwrite, stopping=_stopping(request), progress=console,
        )  # fmt: skip
        if learned is None:
            console.say("Stopped and saved. The same command goes on.")
            raise typer.Exit(request.exit_code)
        _show_learned(console, out, learned)


@contextmanager
def _stopping(request: StopRequest) -> Iterator[Callable[[], bool]]:
    with request:
        yield lambda: request.signal is not None


def _settings(model: str, dimension: int, epochs: int, min_count: int, assignments: list[str]) -> Word2Vec | Glove:
    from unmask.config.static import Glove, Word2Vec, Words
    from unmask.settings import override

    words = Words(min_count=min_count)
    match model:
        case "glove":
            return override(Glove, Glove(dimension=dimension, epochs=epochs or 25, words=words), assignments)
        case "skipgram" | "cbow":
            begun = Word2Vec(model=model, dimension=dimension, epochs=epochs or 5, words=words)
            return override(Word2Vec, begun, assignments)
    raise UnmaskError(f"unknown model {model!r}", where="MODEL", do="give skipgram, cbow or glove")


def _words(segmenter: str, user_words: Path | None) -> Any:
    from unmask.cli.options import word_splitter

    return word_splitter(segmenter, user_words)


def _show_learned(console: Console, out: Path, learned: Learned) -> None:
    rows: list[list[object]] = [
        *(_read_rows(learned.read) if learned.read else []),
        ["words read", learned.tokens],
        ["rare ones, left out", learned.tokens - learned.kept],
        ["different words with a vector", learned.words],
        ["loss of the first epoch", round(learned.losses[0], 4)],
        [f"loss of the last, number {len(learned.losses)}", round(learned.losses[-1], 4)],
    ]
    console.table(str(out), rows)
    seen = learned.kept * len(learned.losses)
    if seen < FEW:
        console.warn(
            f"{seen:,} words were seen in all epochs together: too few for good vectors. Give more text, or more --epochs."
        )
    console.say(f"\nNext: {command('vectors', 'neighbors', out, 'WORD')}")


def _read_rows(read: ReadReport) -> list[list[object]]:
    unusual: list[list[object]] = [
        ["bad records, left out", read.bad_count],
        *([f"files of kind {kind}, passed over", count] for kind, count in sorted(read.ignored.items())),
        ["byte order marks removed", read.boms],
        ["NUL characters removed", read.nuls],
    ]
    return [["documents read", read.documents], *(row for row in unusual if row[1])]


@app.command()
def neighbors(
    vectors: At,
    words: Annotated[list[str], typer.Argument(metavar="WORD...", help="Words to look up.")],
    count: Count = 10,
    limit: Limit = 0,
    as_json: Json = False,
) -> None:
    """The words most like others, by cosine.

    Example: unmask vectors neighbors vectors river bank
    """
    from unmask.cli.console import Console

    with Console() as console:
        held = _load(console, vectors, 0)
        found = dict(zip(words, held.neighbors_of(words, count, limit=limit), strict=True))
        if as_json:
            typer.echo(
                json.dumps({word: [one._asdict() for one in row] for word, row in found.items()}, ensure_ascii=False)
            )
            return
        for word, row in found.items():
            console.table(word, [[one.word, f"{one.score:.3f}"] for one in row], ["word", "cosine"])


@app.command()
def analogy(
    vectors: At,
    words: Annotated[list[str], typer.Argument(metavar="A B C", help="A is to B as C is to what?")],
    count: Count = 10,
    method: Annotated[str, typer.Option("--method", help="add (3CosAdd) or mul (3CosMul).")] = "add",
    limit: Limit = 0,
    as_json: Json = False,
) -> None:
    """What is to C as B is to A?

    Example: unmask vectors analogy vectors man king woman
    """
    from unmask.cli.console import Console

    if len(words) != 3:
        raise UnmaskError(f"an analogy has three words, not {len(words)}", where="A B C", do="give e.g. man king woman")
    with Console() as console:
        a, b, c = words
        found = _load(console, vectors, 0).analogy(a, b, c, count, method=_method(method), limit=limit)
        if as_json:
            typer.echo(json.dumps([one._asdict() for one in found], ensure_ascii=False))
            return
        title = f"{a} : {b} = {c} : ?"
        console.table(title, [[one.word, f"{one.score:.3f}"] for one in found], ["word", "score"])


@app.command()
def evaluate(
    vectors: At,
    sets: Annotated[list[Path], typer.Argument(metavar="SET...", help="Word pairs with scores, or analogies.")],
    method: Annotated[str, typer.Option("--method", help="Of analogies: add (3CosAdd) or mul (3CosMul).")] = "add",
    case: Annotated[bool, typer.Option("--case/--ignore-case", help="Tell The from the.")] = False,
    limit: Limit = 300_000,
    as_json: Json = False,
) -> None:
    """Measure vectors by word pairs that people scored (Spearman's correlation) and by analogies (share of right answers).

    Pairs are lines of two words and a number; analogies are Google's file, or tab-separated with a line of names above.

    Example: unmask vectors evaluate vectors wordsim353.tsv google_analogies.txt
    """
    from unmask.cli.console import Console

    with Console() as console:
        held = _load(console, vectors, 0)
        results = {str(path): _measured(console, held, path, method, case, limit) for path in sets}
        if as_json:
            typer.echo(json.dumps(results, ensure_ascii=False, allow_nan=False))
            return
        columns = ["set", "measure", "value, %", "asked", "with vectors"]
        console.table("Quality", [_row(path, result) for path, result in results.items()], columns)
        for path, result in results.items():
            if not result["used"]:
                console.warn(f"None of the words in {Path(path).name} has a vector: is it of another language?")
            for section in result.get("sections", ()):
                console.note(f"{Path(path).name} {section['name']}: {section['correct']} of {section['used']} right")


def _measured(console: Console, held: Vectors, path: Path, method: str, case: bool, limit: int) -> dict[str, Any]:
    from unmask.measure.word_sets import is_analogies, read_analogies, read_pairs
    from unmask.measure.words import word_analogies, word_similarity

    if is_analogies(path):
        score = word_analogies(
            held, read_analogies(path), method=_method(method), ignore_case=not case, limit=limit, progress=console
        )
        sections = [
            {"name": part.name, "asked": part.questions, "used": part.used, "correct": part.correct}
            for part in score.sections
        ]
        total, value = score.total, score.total.accuracy if score.total.used else None
        counted = {"asked": total.questions, "used": total.used, "sections": sections}
        return {"measure": "accuracy", "value": value, **counted}
    found = word_similarity(held, read_pairs(path), ignore_case=not case, limit=limit)
    value = found.spearman if math.isfinite(found.spearman) else None  # of equal numbers there is none
    return {"measure": "spearman", "value": value, "asked": found.pairs, "used": found.used}


def _row(path: str, result: dict[str, Any]) -> list[object]:
    value = "–" if result["value"] is None else f"{100 * result['value']:.1f}"
    return [Path(path).name, result["measure"], value, result["asked"], result["used"]]


@app.command()
def convert(
    vectors: At,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A file, or a folder of unmask's.", show_default=False)],
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="word2vec (text), word2vec-binary, glove (text without a header), fasttext (.vec) or folder.",
            show_default="by the name: .bin binary, .vec fasttext, .txt word2vec, none a folder",
        ),
    ] = "",
    limit: Limit = 0,
    underscores: Annotated[bool, typer.Option("--underscores", help="Write _ for white space inside words.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
) -> None:
    """Vectors from one form to another; gensim, spaCy and others read what comes out.

    Example: unmask vectors convert vectors vectors.txt
    """
    from unmask.cli.console import Console
    from unmask.static.folder import StaticFolder, write_static_folder
    from unmask.static.formats import write_file

    kinds = {".bin": "word2vec-binary", ".vec": "fasttext", ".txt": "word2vec", "": "folder"}
    if not form and out.suffix not in kinds:
        raise UnmaskError(
            f"the name does not say what to write: {out.suffix} is none of .txt, .vec and .bin",
            where=str(out),
            do="choose such a name, or say --format; a compressed file is made afterwards, by gzip or zstd",
        )
    form = form or kinds[out.suffix]
    if form not in (*kinds.values(), "glove"):
        raise UnmaskError(
            f"unknown format {form!r}", where="--format", do="give word2vec, word2vec-binary, glove, fasttext or folder"
        )
    if out.exists() and not overwrite:
        raise UnmaskError("the output exists already", where=str(out), do="choose another name, or say --overwrite")
    with Console() as console:
        held = _load(console, vectors, limit)
        if form == "folder":
            write_static_folder(out, StaticFolder(held), overwrite=overwrite)
        else:
            spaces: Literal["error", "underscore"] = "underscore" if underscores else "error"
            write_file(held, out, cast(Any, form), spaces=spaces, progress=console)
        console.say(f"{len(held.words):,} words of {held.dimension} numbers: {out} ({form})")


def _load(console: Console, path: Path, limit: int) -> Vectors:
    from unmask.static.load import load_vectors

    vectors, report = load_vectors(path, limit=limit, progress=console)
    for warning in report.warnings if report else ():
        console.warn(warning)
    return vectors


def _method(method: str) -> Literal["add", "mul"]:
    if method not in ("add", "mul"):
        raise UnmaskError(f"unknown method {method!r}", where="--method", do="give add or mul")
    return "add" if method == "add" else "mul"
