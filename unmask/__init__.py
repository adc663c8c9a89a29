"""unmask: pre-train text encoders on your own corpus and put them to work."""

__version__ = "0.1.0"
