"""Models run in onnxruntime as they lie in the file: weights mapped, inner values exposed, what cannot run cut out."""
