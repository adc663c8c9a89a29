"""ONNX: a model folder's network as a graph that other runtimes compute, checked against our own answers before it is kept."""
