"""Sampling: reading a tensor at computed places, with interpolation."""
