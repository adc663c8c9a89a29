"""Files of vectors as other programs write and read them: word2vec text and binary, GloVe, fastText .vec."""

from __future__ import annotations

from unmask.static.formats.read import read_file
from unmask.static.formats.report import FileFormat, VectorReport
from unmask.static.formats.write import write_file

__all__ = ["FileFormat", "VectorReport", "read_file", "write_file"]
