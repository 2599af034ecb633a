"""Detection: suppression of overlapping boxes, and what stands around it."""
