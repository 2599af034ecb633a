"""Arithmetic of which the exporters' own translation is missing, or wrong for some values."""
