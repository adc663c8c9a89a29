"""Numbers: attention, encoder, heads. Nothing here knows an objective or a Hugging Face name."""
