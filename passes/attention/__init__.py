"""Attention and what goes with it."""
