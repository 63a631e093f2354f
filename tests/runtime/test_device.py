"""The CPU adapter, and torchtitan's private names that it leans on."""

import dataclasses
import importlib
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.distributed.fsdp import FSDPModule
from torch.nn.attention.flex_attention import create_block_mask
from torchtitan.models.llama3.config_registry import llama3_debugmodel

from meshlang.runtime import device
from meshlang.runtime.attention import CpuFlexAttention

COPIES = (
    "torchtitan.components.metrics",
    "torchtitan.distributed.parallel_dims",
    "torchtitan.distributed.utils",
    "torchtitan.models.common.token_dispatcher",
    "torchtitan.tools.profiler",
)


@pytest.fixture
def cpu() -> str:
    """The adapter in place, as it is in a run on a CPU machine."""
    return device.prepare("cpu")


@pytest.mark.parametrize(("module", "name"), device.PRIVATE_NAMES)
def test_private_name_is_still_there(module: str, name: str) -> None:
    """Each private name that the adapter replaces exists in this torchtitan and torch."""
    assert name in vars(importlib.import_module(module))


def test_install_replaces_exactly_the_listed_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names that are rebound are those of PRIVATE_NAMES, no more and no fewer."""
    rebound = []
    monkeypatch.setattr(device, "_rebind", lambda owner, name, value: rebound.append((owner, name)))
    device._install()
    assert tuple(rebound) == device.PRIVATE_NAMES


def test_moved_name_stops_the_adapter() -> None:
    """A name that has moved is an error that says which, and not a silent miss."""
    with pytest.raises(RuntimeError, match=r"needs torchtitan\.tools\.utils\.no_such_name"):
        device._rebind("torchtitan.tools.utils", "no_such_name", None)


@pytest.mark.parametrize("name", COPIES)
def test_modules_that_copied_the_device_see_the_cpu(cpu: str, name: str) -> None:
    """torchtitan's modules hold the CPU also when they were imported before the adapter."""
    names = vars(importlib.import_module(name))
    assert names.get("device_type", "cpu") == "cpu"
    assert isinstance(names.get("device_module", device.CpuModule("none")), device.CpuModule)
    assert {"device_type", "device_module"} & names.keys()


def test_no_other_module_copies_the_device(cpu: str) -> None:
    """Every loaded torchtitan module agrees on the device type."""
    importlib.import_module("torchtitan.trainer")
    held = {
        name: vars(module)["device_type"]
        for name, module in sys.modules.items()
        if name.startswith("torchtitan.") and "device_type" in vars(module)
    }
    assert set(held.values()) == {"cpu"}


def test_masks_are_made_eagerly(cpu: str) -> None:
    """torchtitan's mask function is torch's eager one: nothing is compiled for a mask."""
    attention = importlib.import_module("torchtitan.models.common.attention")
    assert attention._compiled_create_block_mask is create_block_mask
    mask = attention.create_attention_mask(lambda b, h, q, k: q >= k, 1, None, 8, 8, device="cpu")
    assert mask.shape == (1, 1, 8, 8)


def test_memory_is_this_processs_own(cpu: str) -> None:
    """torchtitan's monitor reports a real resident size, below the machine's memory."""
    metrics = importlib.import_module("torchtitan.components.metrics")
    stats = metrics.build_device_memory_monitor().get_peak_stats()
    assert 0.05 < stats.max_reserved_gib < 64
    assert 0 < stats.max_reserved_pct < 100
    assert stats.num_ooms == 0


def test_peak_flops_ask_no_other_program(cpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No lspci is started for a CPU, whose utilization reads as zero."""
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a program was started"))
    assert importlib.import_module("torchtitan.tools.utils").get_peak_flops("any") == float("inf")


def test_local_device_is_the_cpu(cpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every local rank's device is the one CPU."""
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert importlib.import_module("torchtitan.tools.utils").get_local_device() == torch.device("cpu", 0)


def test_device_module_forwards_the_rest(cpu: str) -> None:
    """What the adapter does not answer, torch.cpu does; the current device is an index."""
    module = importlib.import_module("torchtitan.tools.utils").device_module
    assert module.is_available() is torch.cpu.is_available()
    assert module.current_device() == 0
    assert str(os.cpu_count()) in module.get_device_name()


def test_second_call_changes_nothing(cpu: str, caplog: pytest.LogCaptureFixture) -> None:
    """The adapter is put in place once, and logs its one line once."""
    utils = importlib.import_module("torchtitan.tools.utils")
    before = utils.device_module
    with caplog.at_level(logging.INFO):
        assert device.prepare("cpu") == "cpu"
    assert utils.device_module is before
    assert not caplog.records


def test_gpu_machine_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where CUDA is there it is chosen, and nothing of torchtitan is replaced."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(device, "_install", lambda: pytest.fail("the adapter was installed"))
    assert device.prepare() == device.prepare("cuda") == "cuda"


def test_gpu_config_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the adapter a config comes back as it was."""
    monkeypatch.setattr(device, "is_prepared", lambda: False)
    config = llama3_debugmodel()
    before = config.to_dict()
    assert device.config_for_cpu(config).to_dict() == before


def test_absent_cuda_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA that is asked for and not there is an error, never a quiet CPU run."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="no CUDA device"):
        device.prepare("cuda")


def test_unknown_device_is_an_error() -> None:
    """Only cpu and cuda are known."""
    with pytest.raises(ValueError, match='"tpu" is not known'):
        device.prepare("tpu")


def test_config_for_cpu_turns_gpu_parts_off(cpu: str) -> None:
    """CUDA graphs, flight recorder and compilation are off, and every attention has a backward."""
    config = llama3_debugmodel()
    config.compile.enable = True
    changed = device.config_for_cpu(config)
    assert changed is config
    assert config.training.disable_cuda_graphs
    assert config.comm.trace_buf_size == 0
    assert not config.compile.enable
    layers = config.model_spec.model.layers
    assert all(isinstance(layer.attention.inner_attention, CpuFlexAttention.Config) for layer in layers)


def test_config_for_cpu_keeps_asked_compile(cpu: str) -> None:
    """Compilation stays on where it is asked for."""
    config = llama3_debugmodel()
    config.compile.enable = True
    assert device.config_for_cpu(config, keep_compile=True).compile.enable


def test_config_for_cpu_checks_again(cpu: str) -> None:
    """A change that the config's own checks refuse is refused before the run starts."""
    config = llama3_debugmodel()
    config.parallelism.pipeline_parallel_degree = 2
    config.parallelism.pipeline_parallel_microbatch_size = 3
    with pytest.raises(ValueError, match="evenly divisible"):
        device.config_for_cpu(config)


def test_config_for_cpu_wraps_once(cpu: str) -> None:
    """The recipe's parallelize function is wrapped once, and its arguments pass through."""
    config = llama3_debugmodel()
    calls = []
    spec = dataclasses.replace(
        config.model_spec, parallelize_fn=lambda model, **options: calls.append(options) or model
    )
    config.model_spec = spec
    wrapped = device.config_for_cpu(device.config_for_cpu(config)).model_spec.parallelize_fn
    assert wrapped.inner is spec.parallelize_fn
    model = torch.nn.Identity()
    assert wrapped(model, dump_folder="x") is model
    assert calls == [{"dump_folder": "x"}]


def test_every_fsdp_module_is_forced() -> None:
    """Each FSDP module of a model is told to reduce by sum, and counted; others are not."""
    told = []

    class Sharded(FSDPModule, torch.nn.Module):
        def __new__(cls) -> "Sharded":
            return object.__new__(cls)

        def set_force_sum_reduction_for_comms(self, enable: bool) -> None:
            told.append(enable)

    assert device.force_sum_reduction(torch.nn.Sequential(Sharded(), torch.nn.Linear(2, 2), Sharded())) == 2
    assert told == [True, True]


def test_one_thread_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank computes with one thread."""
    threads = []
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    device.one_thread_a_rank()
    assert threads == [1]


SCRIPT = """
import sys, torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from meshlang.runtime.device import force_sum_reduction

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
mesh = dist.init_device_mesh("cpu", (2,))

def gradient(force):
    layer = torch.nn.Linear(4, 2, bias=False)
    torch.nn.init.ones_(layer.weight)
    fully_shard(layer, mesh=mesh)
    layer.set_gradient_divide_factor(1.0)
    if force:
        assert force_sum_reduction(layer) == 1
    layer(torch.full((1, 4), rank + 1.0)).sum().backward()
    return layer.weight.grad.full_tensor()

assert torch.equal(gradient(True), torch.full((2, 4), 3.0))
try:
    gradient(False)
except Exception as error:
    assert "PREMUL_SUM" in str(error), error
    print("refused")
"""


@pytest.mark.gloo
def test_fsdp_over_gloo_sums_gradients(tmp_path: Path) -> None:
    """Forced, FSDP over gloo adds the ranks' gradients; unforced, gloo refuses PREMUL_SUM."""
    script = [sys.executable, "-c", SCRIPT]
    ranks = [
        subprocess.Popen([*script, str(r), str(tmp_path / "store")], stdout=subprocess.PIPE, text=True) for r in (0, 1)
    ]
    outputs = [rank.communicate(timeout=120)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    assert all("refused" in output for output in outputs)
