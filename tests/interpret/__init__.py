"""The interpreter: ONNX's node tests, the cases of the passes, gradients, and the training of a whole model."""
