"""Docstrings and reStructuredText or Markdown files become plain English paragraphs: no code, tables or markup."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field

COMMON = frozenset(
    "the a an of to in is are and or for be if with that this it as by on not from at was will can may should which"
    " when all any each no but than then into its you we has have been use used using return returns only one".split()
)
KEPT = frozenset("note warning tip important caution attention hint admonition seealso danger".split())
TOLD = frozenset("param parameter arg argument key keyword raise raises except exception return returns yield yields"
                 " ivar cvar var attribute".split())  # fmt: skip
ENDS = tuple(".!?:;)”\"'")
DROPPED = frozenset(["see also", "references", "reference", "bibliography", "contents", "license", "installation"])

FENCE = ("```", "~~~")
PROMPT = re.compile(r"(>>>|In ?\[\d*\]:|\$ |% \w)")
DIRECTIVE = re.compile(r"\.\. ?([\w.:+-]+?)::\s*(.*)")
FOOTNOTE = re.compile(r"\[\w{1,6}\] ")
HEADING = re.compile(r"#{1,6} ")
BORDER = re.compile(r"[\s=+|:~^\"'`*#_.-]{3,}")
ITEM = re.compile(r"(?:[-*+•]|\d{1,2}[.)]|\([\da-z]\)|#\.)\s+")
FIELD = re.compile(r":(\w+)[^:`]*:\s*(.*)")
NAME = r"\*{0,2}[`'\"]*[A-Za-z_][\w.]*[`'\"]*(?:, \*{0,2}[`\w.]+)*"
NAMED = re.compile(NAME + r"\s*(?:(?:\(.{0,120}?\)|\[.{0,120}?\])\s*:(?:\s+|$)|:\s+)(.*)")
TYPED = re.compile(r"[\w*,. `'\"]{1,60} ?: \S.*|[\w*,` ]{1,40}:")
WORD = re.compile(r"[a-z]+(?:['’-][a-z]+)*")
CODE = re.compile(r"\\[A-Za-z]|[{}]|%\(|%s|->|::=|\|\||&&|<\w+>|\w\(self|^(?:def|import|@\w+|from \S+ import) ")
LEGAL = re.compile(r"copyright|licen[sc]ed? |warrant(?:y|ies)|permission is hereby|redistribution", re.I)
SENTENCE_END = re.compile(r"[.!?][)\"'”’]*(?=\s|$)")

INLINE: list[
    tuple[str, re.Pattern[str], str | Callable[[re.Match[str]], str]]
] = [  # (what must be in the text, pattern, what is kept of it), in this order
    ("<!-", re.compile(r"<!--.*?-->"), ""),
    ("`", re.compile(r":math:`([^`]*)`"), lambda m: _spoken_math(m[1])),
    ("$", re.compile(r"(?<![\w$])\$([^$\n]{1,80})\$"), lambda m: _spoken_math(m[1])),
    (":`", re.compile(r":[\w:.+-]{1,30}:`~[^`<]*?([^`<.]+)`"), r"\1"),
    (":`", re.compile(r":[\w:.+-]{1,30}:`([^`<]*?)\s*(?:<[^`>]*>)?`"), r"\1"),
    ("`", re.compile(r"`([^`<]+?)\s*<[^`>]*>`_{0,2}"), r"\1"),
    ("]", re.compile(r"!?\[([^\[\]]*)\](?:\([^()\s]*\)|\[[^\[\]]*\])"), r"\1"),
    ("]_", re.compile(r"\s?\[(?:\d{1,3}|[#\w*]{1,12})\]_"), ""),
    ("``", re.compile(r"``+([^`]*)``+"), r"\1"),
    ("`", re.compile(r"`([^`]*)`_{0,2}"), r"\1"),
    ("**", re.compile(r"\*\*([^*\s][^*]*)\*\*"), r"\1"),
    ("*", re.compile(r"(?<![\w*])\*([^*\s](?:[^*]*[^*\s])?)\*(?![\w*])"), r"\1"),
    ("<", re.compile(r"</?(?:a|b|i|p|br|em|img|tip|div|code|span|strong|center|td|tr|h\d)\b[^<>]{0,300}>", re.I), " "),
    ("://", re.compile(r"<?https?://(?:www\.)?([^/\s<>)\]]+)[^\s<>)\]]*>?"), r"\1"),
    ("──", re.compile("[─═]+"), " "),
    ("\\", re.compile(r"\\([^\w\s])"), r"\1"),
    ("#", re.compile(r"(?<!\s)\s*#\s*(?:noqa|type:|pylint).*"), ""),
]


def paragraphs(text: str) -> list[str]:
    """The English paragraphs of a docstring or documentation file, one line each, without markup."""
    page = _Page()
    for line in inspect.cleandoc(text).split("\n"):
        page.add(line.rstrip())
    page.flush()
    return [clean for block in page.blocks if (clean := _plain(" ".join(block)))]


def sentences(text: str) -> int:
    """About how many sentences a text has: their final marks are counted."""
    return len(SENTENCE_END.findall(text))


@dataclass
class _Page:
    """Reads lines one after another and parts them into blocks; what is not prose by its layout is left out."""

    blocks: list[list[str]] = field(default_factory=list)
    current: list[str] = field(default_factory=list)
    indent: int = 0  # of the current block's first line
    deeper_than: int | None = None  # lines further in than this belong to something dropped
    fenced: bool = False
    until_blank: bool = False  # inside a doctest or a table
    dropped_section: bool = False

    def add(self, line: str) -> None:
        word, indent = line.lstrip(), len(line) - len(line.lstrip())
        if word.startswith(FENCE):
            self.fenced = not self.fenced
            self.flush()
        elif self.fenced or self._skips(word, indent):
            return
        elif not word:
            self.flush()
        elif not (self._is_layout(word, indent) or self._is_labelled(word, indent)):
            self._text(word, indent)

    def flush(self) -> None:
        if self.current and not self.dropped_section:
            self.blocks.append(self.current)
        self.current = []

    def _skips(self, word: str, indent: int) -> bool:
        if self.until_blank:
            self.until_blank = bool(word)
            return self.until_blank
        if self.deeper_than is not None:
            if not word or indent > self.deeper_than:
                return True
            self.deeper_than = None
        return False

    def _is_layout(self, word: str, indent: int) -> bool:
        """Headings, tables, prompts, directives: takes the line and answers True."""
        if word[0].isalpha() and not word.startswith("In"):
            return False
        if PROMPT.match(word):
            self.flush()
            self.until_blank = True
        elif BORDER.fullmatch(word):
            self._border(word)
        elif word.startswith(("|", "+-")) or HEADING.match(word):
            self.flush()
        elif directive := DIRECTIVE.match(word):
            self.flush()
            if directive[1].lower() not in KEPT:
                self.deeper_than = indent
            elif directive[2]:
                self._text(directive[2], indent)
        elif word.startswith(".. ") or word == "::" or FOOTNOTE.match(word):
            self.flush()
            self.deeper_than = indent
        else:
            return False
        return True

    def _border(self, word: str) -> None:
        """Below one line it underlines a heading; with gaps or bars it is a table's."""
        if len(set(word)) == 1 and len(self.current) == 1:
            self.dropped_section = self.current.pop().strip(" :").lower() in DROPPED
        else:
            self.flush()
            self.until_blank = len(set(word)) > 1

    def _is_labelled(self, word: str, indent: int) -> bool:
        """List items, fields and named parameters begin a block of their own, without the label."""
        if match := FIELD.match(word):
            self.flush()
            if match[1].lower() in TOLD:
                self._text(match[2], indent)
            else:
                self.deeper_than = indent
        elif match := ITEM.match(word):
            self.flush()
            rest = word[match.end() :]
            named = NAMED.match(rest)
            self._text(named[1] if named else rest, indent)
        elif ":" not in word or (self.current and indent > self.indent):
            return False
        elif (match := NAMED.match(word)) and " : " not in word:
            self.flush()
            self._text(match[1], indent)
        elif (not self.current or indent < self.indent) and TYPED.fullmatch(word):
            self.flush()
        else:
            return False
        return True

    def _text(self, word: str, indent: int) -> None:
        if self.current and indent < self.indent and not self._goes_on(word):
            self.flush()
        if not self.current:
            self.indent = indent
        if word:
            self.current.append(word[:-1] if word.endswith("::") else word)
        if word.endswith("::"):
            self.flush()
            self.deeper_than = self.indent

    def _goes_on(self, word: str) -> bool:
        """Whether a line further out still belongs to the sentence before it, as where a first line hangs in."""
        return word[:1].islower() and not self.current[-1].endswith(ENDS)


def _spoken_math(formula: str) -> str:
    """A short formula without TeX's backslashes and braces."""
    return re.sub(r"\\([A-Za-z]+)", r" \1 ", formula).translate(str.maketrans("", "", "\\{}$&")).strip()


def _plain(text: str) -> str:
    """The block without inline markup, ending in a full stop; "" when it is not an English sentence."""
    for mark, pattern, kept in INLINE:
        if mark in text:
            text = pattern.sub(kept, text)
    text = " ".join(text.split()).strip(" -")
    if not _is_prose(text):
        return ""
    return text if text.endswith(ENDS) else text.rstrip(",") + "."


def _is_prose(text: str) -> bool:
    """Whether a block reads as English: enough letters, enough of the commonest words; no code, TeX or licence."""
    words = WORD.findall(text.lower())
    if len(words) < (3 if text.endswith(ENDS) else 5) or CODE.search(text) or LEGAL.search(text):
        return False
    letters = sum(map(len, words))
    common = sum(map(COMMON.__contains__, words))
    marks = sum(map(text.count, "=<>_[]()@#/\\|+*^~$"))
    if letters < 2.4 * len(words):  # English words have 4.7 letters; formulas far fewer
        return False
    return (
        letters + text.count(" ") >= 0.82 * len(text)
        and common >= max(1, 0.12 * len(words))
        and marks <= 0.07 * len(text)
    )
