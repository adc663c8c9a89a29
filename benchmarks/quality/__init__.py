"""The two sides of `benchmarks/finetune_quality.py`, and what they are compared on."""
