"""A model that still holds placeholders, run: PyTorch references stand in for them."""
