"""Which specs a model could run under on so many ranks, told apart by what their plans cost."""
