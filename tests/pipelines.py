"""The spec of a pipeline that several files test with."""

#: BSIPipe on four ranks, each with one stage of each replica.
FOUR_RANKS = """meshlang = 1
include = ["preset:whole_weights"]
model = "llama/tiny"

[mesh]
pp = 4

[sizes]
batch = 8
seq = 256

[pipeline]
schedule = "bsipipe"
microbatches = 8
chunks = 1
"""
