"""Labelled data: what people's files say, as records that know where they stand."""
