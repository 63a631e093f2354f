"""From an autoregressive Llama to a block-diffusion model: the same weights, ready to be trained on.

    python -m meshlang_models.block_diffusion.convert outputs/checkpoint/step-60 converted
    ... -- --checkpoint.enable --checkpoint.initial-load-path converted --checkpoint.initial-load-model-only

Both models have the same parameters under the same names, so nothing is computed: the weights are
held against the flavors, and written without the optimizer and the data of the run they are from.
A Llama has learned to predict the next token, as the complementary objective goes on to do; its
embedding of the mask token is as it was drawn.
"""

from __future__ import annotations

import argparse
import sys

from .weights import find, flavor_of, read, write


def convert(source: str, target: str) -> str:
    """Write the weights of a Llama's checkpoint as those of a block-diffusion model; gives its flavor.

    Raises:
        ValueError: there is no checkpoint, or no flavor has such weights.
    """
    saved = read(source)
    flavor = flavor_of(saved.weights)
    write(saved.weights, target)
    return flavor


def main(arguments: list[str] | None = None) -> int:
    """The command; 0, or 2 with what is wrong on stderr."""
    parser = argparse.ArgumentParser(prog="convert", description="A Llama's weights as those of block diffusion.")
    parser.add_argument("source", help="a checkpoint of models/llama, or a folder of such")
    parser.add_argument("target", help="the folder to write")
    given = parser.parse_args(arguments)
    try:
        flavor = convert(given.source, given.target)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{find(given.source)} -> {given.target}: block_diffusion/{flavor}")
    print(f"go on with --checkpoint.initial-load-path {given.target} --checkpoint.initial-load-model-only")
    return 0


if __name__ == "__main__":
    sys.exit(main())
