"""Trained models at work: a folder, its tokenizer and texts become vectors, in memory or as a stream."""
