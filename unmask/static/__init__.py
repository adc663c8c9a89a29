"""Static word vectors: one vector a word, learned from which words stand near each other."""
