"""Order along an axis: sorting, running extremes, ranks, searches, distinct values and counts."""
