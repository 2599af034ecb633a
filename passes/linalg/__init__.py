"""Linear algebra on real matrices and batches of them."""
