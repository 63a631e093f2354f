"""meshlang: say how a model is spread over machines, and have it checked before it runs."""
