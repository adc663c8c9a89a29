"""What a file of vectors turned out to be, and what in it was odd but could be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FileFormat = Literal["word2vec", "word2vec-binary", "glove", "fasttext"]


@dataclass
class VectorReport:
    """Counts of a reading. What the tools in use are known to write is read and counted here; all else is an error.

    `promised` is the number of rows that the header tells: GloVe's -write-header is wrong by one, so the rows are trusted.
    """

    format: FileFormat = "word2vec"
    dimension: int = 0
    rows: int = 0
    """Rows read, those left out included."""
    promised: int | None = None
    duplicates: int = 0
    """Rows left out because their word was there already: the first one, the more frequent, stays."""
    broken: int = 0
    """Words that are not UTF-8 (the C program cuts long ones after 100 bytes): the broken bytes became U+FFFD."""
    spaced: int = 0
    """Words with white space inside, of any kind Unicode knows: kept."""
    nameless: int = 0
    """Rows without a word: left out."""
    whole: bool = True
    """False where a limit ended the reading."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """One sentence for each kind of oddity."""
        counted = {
            "rows left out, their words were there already": self.duplicates,
            "words that are not UTF-8, their broken bytes replaced by U+FFFD": self.broken,
            "words with white space inside": self.spaced,
            "rows left out, they have no word": self.nameless,
        }
        found = [f"{what}: {count:,}" for what, count in counted.items() if count]
        if self.whole and self.promised not in (None, self.rows):
            found.insert(
                0, f"the header promises {self.promised:,} rows, there are {self.rows:,}: the rows are trusted"
            )
        return tuple(found)
