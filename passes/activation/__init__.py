"""Activations: elementwise functions with a name."""
