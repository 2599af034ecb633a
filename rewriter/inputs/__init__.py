"""Inputs that a model accepts: drawn, or given by the user."""
