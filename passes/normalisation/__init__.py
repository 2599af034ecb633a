"""Normalisations, and operators that are trained apart and run as one."""
