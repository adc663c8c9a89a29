"""One text as a model sees it in pre-training, with every number on the way to the loss: `unmask explain` as values."""

from unmask.explanation.ask import OBJECTIVES
from unmask.explanation.result import Explanation
from unmask.explanation.whole import explain

__all__ = ["OBJECTIVES", "Explanation", "explain"]
