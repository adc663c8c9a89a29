"""Texts from columns: parquet files, and data sets of the Hugging Face hub through the `datasets` library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from unmask.errors import UnmaskError
from unmask.text.documents import DamagedInputError, Document, Reading
from unmask.text.formats import choose_field, text_of

ROWS = 256  # per batch: small, because one row may be a whole book


def parquet(name: str, path: Path, reading: Reading) -> Iterator[Document]:
    """The text column of a parquet file, read page by page; `record` is the row."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    reading.report.files += 1
    try:
        with pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as table:
            column = _text_column(table.schema_arrow, name, reading)
            row = 0
            for batch in table.iter_batches(ROWS, columns=[column], use_threads=False):
                for value in batch.column(0):
                    row += 1
                    text = _cell(value, column, f"{name}:{row}", reading)
                    if text is not None and (document := reading.accept(text, name, row)):
                        yield document
    except (pa.ArrowException, OSError) as error:
        why = f"cannot read this parquet file: {str(error).splitlines()[0]}"
        raise DamagedInputError(why, "get the file again") from error


def _text_column(schema: Any, name: str, reading: Reading) -> str:
    import pyarrow.types as kinds

    def holds_text(kind: Any) -> bool:
        kind = kind.value_type if kinds.is_dictionary(kind) else kind
        return bool(kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind))

    texts = [field.name for field in schema if holds_text(field.type)]
    taken = choose_field(reading.options.field, schema.names, texts, where=name)
    if taken not in texts:
        do = f"choose --field; the columns that hold text are: {', '.join(texts) or 'none'}"
        raise UnmaskError(f"column {taken!r} holds {schema.field(taken).type}, not text", where=name, do=do)
    reading.take_field(taken)
    return taken


def _cell(value: Any, column: str, where: str, reading: Reading) -> str | None:
    try:
        return text_of({column: value.as_py()}, column, where, reading)
    except UnicodeDecodeError as error:
        reading.bad(
            f"not UTF-8 at byte {error.start + 1} of the value", where=where, do="write the file again as UTF-8"
        )
        return None


def hub_dataset(name: str, reading: Reading) -> Iterator[Document]:
    """The texts of "hf:OWNER/NAME[/CONFIG][:SPLIT]", streamed; `record` is the row."""
    path, config, split = hub_name(name)
    try:
        import datasets
    except ImportError as error:
        do = "pip install 'unmask[datasets]'"
        raise UnmaskError("hf: sources need the datasets library, which is not installed", where=name, do=do) from error
    reading.report.files += 1
    taken = None
    rows = _failures_named(name, lambda: iter(datasets.load_dataset(path, config, split=split, streaming=True)))
    row = 0
    while (record := _failures_named(name, lambda: next(rows, None))) is not None:
        row += 1
        where = f"{name}:{row}"
        if taken is None:
            texts = [key for key, value in record.items() if isinstance(value, str)]
            taken = choose_field(reading.options.field, list(record), texts, where=where)
            reading.take_field(taken)
        text = text_of(record, taken, where, reading)
        if text is not None and (document := reading.accept(text, name, row)):
            yield document


def hub_name(source: str) -> tuple[str, str | None, str]:
    """(data set, configuration, split) of "hf:OWNER/NAME[/CONFIG][:SPLIT]"; the split is "train" unless given.

    Two parts are OWNER/NAME, as the hub writes them; a data set without an owner is its bare name."""
    path, _, split = source.removeprefix("hf:").partition(":")
    parts = path.split("/")
    if not all(parts) or len(parts) > 3:
        raise UnmaskError(
            f"{source!r} is not a data set's name", do="write hf:OWNER/NAME, hf:OWNER/NAME/CONFIG:SPLIT …"
        )
    return "/".join(parts[:2]), (parts[2] if len(parts) == 3 else None), split or "train"


def _failures_named(name: str, act: Callable[[], Any]) -> Any:
    """Runs one call into `datasets`, whose errors are of every kind (network, names, formats)."""
    try:
        return act()
    except Exception as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise UnmaskError(
            f"the datasets library could not read it: {why}", where=name, do="check the name, the split and the network"
        ) from error
