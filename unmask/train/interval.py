"""What a run measures of itself between two records: speed, waiting, share of the machine's peak."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from unmask.batch import PackedBatch

ENOUGH = 10  # steps after which waiting says something about the loader: the first batch is always waited for
SLOW_LOADER = 0.02  # of a run's time spent in waiting for batches; above it more workers would make the run faster


@dataclass
class Interval:
    """Counts since the last record; times are of the monotonic clock, in seconds."""

    since: float = field(default_factory=time.monotonic)
    waited: float = 0.0  # for the loader
    tokens: int = 0
    flops: float = 0.0

    def add(self, batch: PackedBatch, flops: float) -> None:
        """A batch that was trained on."""
        self.tokens += batch.num_tokens
        self.flops += flops

    def rates(self, peak: float) -> dict[str, float]:
        """Real tokens per second and shares from 0 to 1; `peak` is the machine's measured FLOP/s."""
        seconds = max(1e-9, time.monotonic() - self.since)
        return {
            "tokens_per_second": round(self.tokens / seconds, 1),
            "loader_wait": round(self.waited / seconds, 4),
            "peak_share": round(self.flops / seconds / peak, 4),
        }
