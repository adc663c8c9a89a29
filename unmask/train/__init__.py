"""The machine's side of training: the loop, optimizers, checkpoints, reports. No model and no objective is named here."""
