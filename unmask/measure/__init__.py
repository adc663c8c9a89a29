"""How good is it? Held-out loss and perplexity."""
