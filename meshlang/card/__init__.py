"""Model cards: the dimensions of every tensor and boundary of a model, by name."""
