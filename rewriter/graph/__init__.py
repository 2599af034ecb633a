"""The engine's view of a model: scopes, names, types, and putting new nodes in the place of old ones."""
