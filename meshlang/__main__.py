"""`python -m meshlang` is the command line."""

from .cli import main

main(prog_name="meshlang")
