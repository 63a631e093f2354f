"""A plan as pictures: SVG made as text, for the page of `meshlang report` and alone for papers."""
