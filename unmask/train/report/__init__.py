"""report.html: how a training run went, on one page."""
