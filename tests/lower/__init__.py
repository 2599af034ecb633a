"""Standard operators brought to other opsets."""
