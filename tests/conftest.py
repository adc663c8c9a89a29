"""What every test may ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The project's shared data; a clone without it skips the tests that need real corpora."""
    if not (SHARED / "data").is_dir():
        pytest.skip("needs the project's shared data folder beside the repository (../shared)")
    return SHARED
