"""Other people's formats: Hugging Face folders in and out."""
