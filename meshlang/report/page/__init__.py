"""The page of `meshlang report`: pictures, tables and the spec's own lines in one HTML file."""
