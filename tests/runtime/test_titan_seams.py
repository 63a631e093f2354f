"""The parts of torchtitan that plans are lowered onto, where they were when this was written."""

import inspect
from dataclasses import fields
from importlib import import_module

import pytest
from torchtitan.components.checkpointer.dcp import CheckpointManager
from torchtitan.distributed.full_dtensor import resolve_fsdp_mesh
from torchtitan.distributed.parallel_dims import MeshAxisName, ParallelDims
from torchtitan.models.common.embedding import Embedding
from torchtitan.models.llama3 import parallelize_llama
from torchtitan.protocols.module import Module
from torchtitan.protocols.sharding import LocalMapConfig, ShardingConfig, SpmdLayout
from torchtitan.trainer import Trainer

from meshlang.runtime.parallel import PlanParallelize
from meshlang.runtime.seams import PRIVATE_NAMES


@pytest.mark.parametrize(("owner", "name"), PRIVATE_NAMES)
def test_private_name_is_there(owner: str, name: str) -> None:
    """Each private name that seams.py uses is an attribute of its class or module."""
    module, _, kind = owner.rpartition(".")
    assert hasattr(getattr(import_module(module), kind), name)


def test_parallelize_takes_the_same_arguments() -> None:
    """torchtitan calls our function as it calls its own."""
    ours = [name for name in inspect.signature(PlanParallelize.__call__).parameters if name != "self"]
    assert ours == list(inspect.signature(parallelize_llama).parameters)


def test_sharding_config_has_the_same_fields() -> None:
    """What a module may be told is what we tell it: a field more would go unsaid."""
    assert [field.name for field in fields(ShardingConfig)] == [
        "state_shardings",
        "in_src_shardings",
        "in_dst_shardings",
        "out_src_shardings",
        "out_dst_shardings",
        "local_map",
    ]
    assert [field.name for field in fields(LocalMapConfig)] == ["in_grad_placements"]
    assert [field.name for field in fields(SpmdLayout)] == ["axis_types", "partition_spec"]


def test_axes_have_the_same_names() -> None:
    """torchtitan's mesh knows the axes that plans are carried by."""
    assert {"dp", "dp_replicate", "dp_shard", "cp", "tp", "pp"} <= {axis.value for axis in MeshAxisName}


def test_degrees_have_the_same_names() -> None:
    """A run's degrees are read by these names."""
    names = {field.name for field in fields(ParallelDims)}
    assert {"dp_replicate", "dp_shard", "cp", "tp", "pp", "ep", "world_size", "spmd_backend"} <= names


def test_module_reads_its_instance_s_sharding_config() -> None:
    """`parallelize` does what the instance's config says, so a config set after the build counts."""
    source = inspect.getsource(Module.parallelize)
    assert "self._sharding_config" in source
    assert "self.config" not in source


def test_embedding_takes_its_table_for_a_part() -> None:
    """With a tensor axis, torchtitan's embedding looks up by `tp_group`, whatever its table holds."""
    assert "self.tp_group" in inspect.getsource(Embedding.forward)
    assert "tp_group" in inspect.getsource(Embedding.parallelize)


def test_storage_mesh_is_public() -> None:
    """The mesh that FSDP works on comes from one public function."""
    assert list(inspect.signature(resolve_fsdp_mesh).parameters) == ["parallel_dims"]


def test_a_run_can_be_ended_after_a_step() -> None:
    """The trainer asks whether to go on before each step, after the manager has saved, which asks whether to."""
    source = inspect.getsource(Trainer.train)
    assert "while self.should_continue_training():" in source
    assert source.index("self.train_step(") < source.index("self.checkpointer.save(")
    assert "self._should_save(curr_step, last_step)" in inspect.getsource(CheckpointManager._save)
