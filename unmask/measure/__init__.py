"""How good is it? Held-out loss, and the metrics of each task."""
