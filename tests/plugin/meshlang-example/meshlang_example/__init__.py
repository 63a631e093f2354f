"""A strategy and a schedule for meshlang, as anyone would publish them."""
