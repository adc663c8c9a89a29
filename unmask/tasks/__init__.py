"""Fine-tuning, evaluation and prediction: one file for each task, and the road that all of them take."""
