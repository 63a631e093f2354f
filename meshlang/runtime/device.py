"""Which device a run uses, and the CPU adapter that lets torchtitan train on one.

torchtitan 0.3 asks its accelerator questions that `torch.cpu` has no answer for, compiles
mask creation, and reduces FSDP gradients by an operator that gloo lacks. `prepare` answers
the questions, `config_for_cpu` changes what a config has to say. On a GPU both do nothing.

This is the one file of meshlang that names private parts of torchtitan. Each is listed in
`PRIVATE_NAMES`, and `prepare` refuses to run when one of them has moved.
"""

import importlib
import logging
import os
import platform
import resource
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from torchtitan.trainer import Trainer

logger = logging.getLogger(__name__)

_UTILS = "torchtitan.tools.utils"
_ATTENTION = "torchtitan.models.common.attention"
_VISION = "torchtitan.models.common.vision_encoder"
_TORCH_CONTEXT_PARALLEL = "torch.distributed.tensor.experimental._context_parallel._attention"

PRIVATE_NAMES: tuple[tuple[str, str], ...] = (
    (_UTILS, "device_type"),
    (_UTILS, "device_module"),
    (_UTILS, "get_peak_flops"),
    (_ATTENTION, "_compiled_create_block_mask"),
    (_VISION, "compiled_create_block_mask"),
    (_TORCH_CONTEXT_PARALLEL, "_compiled_create_block_mask"),
)
"""Every (module, name) that the CPU adapter replaces."""


@dataclass(frozen=True, kw_only=True)
class CpuProperties:
    """What torchtitan reads of a device: its name, and its memory in bytes."""

    name: str
    total_memory: int


class CpuModule(ModuleType):
    """`torch.cpu`, with answers to what torchtitan asks of an accelerator.

    Memory is this process's peak resident size: an operating system keeps no other figure
    that means "allocated by this rank", and it offers no way to start the peak anew.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)

    def current_device(self) -> int:
        """The index of the only CPU device (torch.cpu answers with a string)."""
        return 0

    def get_device_name(self, device: object = None) -> str:
        """The machine's architecture and its number of cores."""
        return f"{platform.machine()} CPU, {os.cpu_count()} cores"

    def get_device_properties(self, device: object = None) -> CpuProperties:
        """The machine's name and its physical memory."""
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return CpuProperties(name=self.get_device_name(), total_memory=pages)

    def memory_stats(self, device: object = None) -> dict[str, int]:
        """The process's peak resident bytes under the names of the CUDA allocator."""
        peak = peak_resident_bytes()
        return {
            "active_bytes.all.peak": peak,
            "reserved_bytes.all.peak": peak,
            "num_alloc_retries": 0,
            "num_ooms": 0,
        }

    def reset_peak_memory_stats(self, device: object = None) -> None:
        """Does nothing: the resident peak belongs to the process."""

    def empty_cache(self) -> None:
        """Does nothing: the CPU allocator keeps no cache of its own."""


def peak_resident_bytes() -> int:
    """The largest resident size this process has had, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def prepare(device: str | None = None) -> str:
    """The device type of this run, with torchtitan made ready for it.

    Call it before the first import of torchtitan. A later call works too: it rebinds the
    names that modules loaded so far have copied. A second call changes nothing.

    Args:
        device: "cpu", "cuda", or None for CUDA where there is some and the CPU elsewhere.

    Raises:
        ValueError: the device is neither, or CUDA is asked for and not there.
        RuntimeError: torchtitan no longer has a name that the adapter replaces.
    """
    chosen = _choose(device)
    if chosen == "cuda" or is_prepared():
        return chosen
    _install()
    logger.info("device: cpu, %d cores; torchtitan runs on gloo", os.cpu_count() or 1)
    return chosen


def is_prepared() -> bool:
    """Whether the CPU adapter is in place in this process."""
    utils = sys.modules.get(_UTILS)
    return utils is not None and isinstance(vars(utils).get("device_module"), CpuModule)


def one_thread_a_rank() -> None:
    """Torch computes with one thread here, so that ranks of one machine share its cores."""
    torch.set_num_threads(1)


def force_sum_reduction(model: nn.Module) -> int:
    """Every FSDP module in the model reduces gradients by a plain sum; how many there are.

    FSDP asks for PREMUL_SUM once its divide factor is set, as torchtitan does, and gloo
    has no such operator. With a divide factor of 1 both give the same value.
    """
    from torch.distributed.fsdp import FSDPModule

    found = [module for module in model.modules() if isinstance(module, FSDPModule)]
    for module in found:
        module.set_force_sum_reduction_for_comms(True)
    return len(found)


@dataclass(frozen=True, kw_only=True)
class SumReduction:
    """A parallelize function whose FSDP modules reduce by a plain sum."""

    inner: Callable[..., nn.Module]

    def __call__(self, model: nn.Module, **options: Any) -> nn.Module:
        """The model as the inner function makes it, summing over gloo."""
        model = self.inner(model, **options)
        force_sum_reduction(model)
        return model


def config_for_cpu(config: "Trainer.Config", *, keep_compile: bool = False) -> "Trainer.Config":
    """The same config, changed in place so that torchtitan trains it on a CPU.

    CUDA graphs, the NCCL flight recorder and, unless kept, compilation are off. Flex
    attention has a backward. FSDP reduces by a plain sum. The config's own checks run again.
    Nothing changes unless `prepare` chose the CPU.

    Args:
        config: the recipe's config, before a Trainer is built from it.
        keep_compile: leave `compile.enable` as the config has it.
    """
    if not is_prepared():
        return config
    from .attention import swap_inner_attention

    config.training.disable_cuda_graphs = True
    config.comm.trace_buf_size = 0
    if not keep_compile:
        config.compile.enable = False
        config.compile.enable_async_tensor_parallel = False
    spec = config.model_spec
    if spec is not None:
        swapped = swap_inner_attention(spec.model)
        config.model_spec = replace(spec, parallelize_fn=_summing(spec.parallelize_fn))
        logger.info("device: cpu; %d flex attentions run on SDPA", swapped)
    config.__post_init__()
    return config


def _summing(function: Callable[..., nn.Module]) -> SumReduction:
    return function if isinstance(function, SumReduction) else SumReduction(inner=function)


def _choose(device: str | None) -> str:
    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device not in ("cpu", "cuda"):
        raise ValueError(f'device "{device}" is not known; it is "cpu" or "cuda"')
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError('device "cuda" is asked for, but torch sees no CUDA device here')
    return device


def _install() -> None:
    """Replace every private name, in its own module and in those that copied it."""
    from torch.nn.attention.flex_attention import create_block_mask

    module = CpuModule("meshlang_cpu", "torch.cpu for torchtitan")
    _rebind(_UTILS, "device_type", "cpu")
    _rebind(_UTILS, "device_module", module)
    _rebind(_UTILS, "get_peak_flops", _unknown_peak_flops)
    _rebind(_ATTENTION, "_compiled_create_block_mask", create_block_mask)
    _rebind(_VISION, "compiled_create_block_mask", create_block_mask)
    _rebind(_TORCH_CONTEXT_PARALLEL, "_compiled_create_block_mask", create_block_mask)


def _rebind(owner: str, name: str, value: object) -> None:
    """Set a module's name, and the same name in each torchtitan module that copied it."""
    module = importlib.import_module(owner)
    if name not in vars(module):
        raise RuntimeError(f"the CPU adapter needs {owner}.{name}, which is no longer there")
    old = vars(module)[name]
    setattr(module, name, value)
    for key, other in list(sys.modules.items()):
        if key.startswith("torchtitan.") and vars(other).get(name, value) is old:
            setattr(other, name, value)


def _unknown_peak_flops(device_name: str) -> float:
    """Infinity: no peak is known for a CPU, so that a utilization reads as zero."""
    return float("inf")
