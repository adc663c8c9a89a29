"""How good are answers? Exact match and F1 of SQuAD, by the official definition, and of CMRC 2018 for Chinese.

English (Rajpurkar et al. 2016, section 6.1, and the evaluation script of each version): lower case, no ASCII punctuation, no
articles, white space as one space. Exact: the same words in the same order. F1: of the words as bags. Of several true answers
the best counts. SQuAD 2.0 (Rajpurkar et al. 2018; `impossible`) adds: true answers of which nothing is left are dropped; a
question without answers wants ""; where either side is empty F1 is 1 if both are, else 0.

Chinese (Cui et al. 2019, section 4.2, and its script): each Chinese character is a word of its own, other text is cut at
white space and punctuation, a list of marks is dropped. F1 is made of the longest run of words that both share, in one piece.
The script cuts English inside Chinese with NLTK; here a word is letters and digits with . , ' between them.

All scores are shares from 0 to 1; the scripts print them times 100.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unmask.errors import UnmaskError

Language = Literal["en", "zh"]

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_CHINESE_MARKS = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
_CHINESE_WORDS = re.compile(r"[\u4e00-\u9fa5]|[^\W\u4e00-\u9fa5]+(?:[.,'][^\W\u4e00-\u9fa5]+)*|[^\w\s]")


class Match(NamedTuple):
    """How well a prediction meets the best of the true answers."""

    exact: float
    f1: float


class Threshold(NamedTuple):
    """The best score that any threshold on no-answer scores reaches, and that threshold."""

    score: float
    threshold: float


def answer_scores(
    answers: Sequence[Sequence[str]],
    predictions: Sequence[str],
    *,
    impossible: bool = False,
    language: Language = "en",
    no_answer_scores: Sequence[float] | None = None,
    threshold: float | None = None,
) -> dict[str, float]:
    """Scores of a set of questions, under the official names; `exact` and `f1` first.

    `impossible`: some questions have no answer (SQuAD 2.0); HasAns_ and NoAns_ score those with and those without on their
    own. With `no_answer_scores` (higher: rather no answer), best_exact and best_f1 say what the best threshold would reach
    and which it is; with `threshold` too, a question whose score is above it counts as answered by "".
    """
    assert len(answers) == len(predictions) and (no_answer_scores is None or len(no_answer_scores) == len(answers))
    matches = [
        match(prediction, true, impossible=impossible, language=language)
        for true, prediction in zip(answers, predictions, strict=True)
    ]
    has_answer = np.array([bool(true) for true in answers], bool)
    raw = np.array(matches, np.float64).reshape(-1, 2)
    scores = raw
    if no_answer_scores is not None and threshold is not None:
        refused = np.asarray(no_answer_scores, np.float64) > threshold
        scores = np.where(refused[:, None], ~has_answer[:, None], raw)
    out = _means(scores, "")
    if impossible:
        for name, which in (("HasAns_", has_answer), ("NoAns_", ~has_answer)):
            out |= _means(scores[which], name) if which.any() else {}
    if no_answer_scores is not None:
        for column, name in enumerate(Match._fields):
            best = best_no_answer_threshold(raw[:, column], no_answer_scores, has_answer, predictions)
            out |= {f"best_{name}": best.score, f"best_{name}_thresh": best.threshold}
    return out


def match(prediction: str, answers: Sequence[str], *, impossible: bool = False, language: Language = "en") -> Match:
    """Exact match and F1 of one prediction: the best over `answers`, each on its own.

    Raises UnmaskError for a question without answers unless `impossible`: SQuAD 1.1 has none.
    """
    said = _normalised(prediction, language)
    true = [_normalised(answer, language) for answer in answers]
    if impossible:
        true = [answer for answer in true if answer] or [""]
    elif not true:
        raise UnmaskError("a question without an answer", do="say that some questions are impossible (SQuAD 2.0)")
    guessed = _words(said, language)
    f1 = max(_f1(_words(answer, language), guessed, impossible, language) for answer in true)
    return Match(float(said in true), f1)


def best_no_answer_threshold(
    scores_N: NDArray[np.float64],
    no_answer_scores: Sequence[float],
    has_answer_N: NDArray[np.bool_],
    predictions: Sequence[str],
) -> Threshold:
    """The script's search for SQuAD 2.0: at first all are refused, then questions are let in by rising no-answer score.

    A question with an answer adds its score; one without costs 1 if something was predicted. The first of equally good
    thresholds wins. Questions with equal no-answer scores are let in one by one, in order, as the script does. Where to
    refuse all is best the script says 0, which does so for probabilities; a score of 0 or below asks for less, and gets it here.
    """
    unsure = np.asarray(no_answer_scores, np.float64)
    order = np.argsort(unsure, kind="stable")
    wrong = np.array([-float(bool(prediction)) for prediction in predictions])
    gains = np.where(has_answer_N, scores_N, wrong)[order]
    reached = np.cumsum(np.append(float((~has_answer_N).sum()), gains))
    best = int(reached.argmax())
    lowest = float(unsure.min()) if len(unsure) else 0.0
    refuse_all = 0.0 if lowest > 0 else float(np.nextafter(lowest, -np.inf))
    threshold = float(unsure[order[best - 1]]) if best else refuse_all
    return Threshold(float(reached[best]) / max(1, len(unsure)), threshold)


def _means(scores_N2: NDArray[np.float64], prefix: str) -> dict[str, float]:
    total = len(scores_N2)
    exact, f1 = (scores_N2.sum(0) / max(1, total)).tolist()
    return {f"{prefix}exact": exact, f"{prefix}f1": f1, f"{prefix}total": float(total)}


def _normalised(text: str, language: Language) -> str:
    """What has to be equal for an exact match."""
    if language == "zh":
        return text.lower().strip().translate(_CHINESE_MARKS)
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def _words(normalised: str, language: Language) -> list[str]:
    """What F1 counts."""
    return _CHINESE_WORDS.findall(normalised) if language == "zh" else normalised.split()


def _f1(true: list[str], guessed: list[str], impossible: bool, language: Language) -> float:
    if impossible and not (true and guessed):
        return float(true == guessed)
    if language == "zh":
        shared = SequenceMatcher(None, true, guessed, autojunk=False).find_longest_match().size
    else:
        shared = (Counter(true) & Counter(guessed)).total()
    if not shared:
        return 0.0
    precision, recall = shared / len(guessed), shared / len(true)
    return 2 * precision * recall / (precision + recall)
