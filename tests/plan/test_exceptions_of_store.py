"""`except` of `[store]` names a tensor by any of its names."""

from meshlang.compiler import Request, compile
from meshlang.source import Source

SPEC = """
meshlang = 1
model = "llama3/1B"
include = ["preset:whole_weights", "preset:fsdp"]
mesh = { dp = 2 }
[store]
except = ["lm_head"]
"""


def test_a_tied_tensor_is_excepted_by_its_second_name() -> None:
    """The head of a tied model is its embedding: excepted as the head, it is not stored in parts, and the rest is."""
    plan = compile(Request(source=Source(name="spec.toml", text=SPEC)))
    assert plan.by_fqn["tok_embeddings.weight"].tied == ("lm_head.weight",)
    whole = [tensor.fqn for tensor in plan.tensors if tensor.kind == "parameter" and not tensor.stored]
    assert whole == ["tok_embeddings.weight"]
