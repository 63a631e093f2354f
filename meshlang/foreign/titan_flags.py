"""A command line of torchtitan's: its flags by name, and a finding for each that no spec has a word for.

Names and defaults are those of torchtitan 0.3.0: `torchtitan.trainer.Trainer.Config`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from ..diagnostics import Bag, Diagnostic, Label
from ..near import near
from ..plan.flags import Flag, read_flags
from ..source import Source

#: torchtitan's defaults of the flags that are read here.
DEFAULTS: Mapping[str, str] = {
    "parallelism.data_parallel_replicate_degree": "1",
    "parallelism.data_parallel_shard_degree": "-1",
    "parallelism.fsdp_reshard_after_forward": "default",
    "parallelism.enable_fsdp_symm_mem": "False",
    "parallelism.tensor_parallel_degree": "1",
    "parallelism.enable_sequence_parallel": "True",
    "parallelism.spmd_backend": "spmd_types",
    "parallelism.pipeline_parallel_degree": "1",
    "parallelism.module_fqns_per_model_part": "None",
    "parallelism.pipeline_parallel_first_stage_less_layers": "1",
    "parallelism.pipeline_parallel_last_stage_less_layers": "1",
    "parallelism.pipeline_parallel_layers_per_stage": "None",
    "parallelism.pipeline_parallel_schedule": "1F1B",
    "parallelism.pipeline_parallel_schedule_csv": "",
    "parallelism.pipeline_parallel_microbatch_size": "1",
    "parallelism.context_parallel_degree": "1",
    "parallelism.context_parallel_load_balancer": "headtail",
    "parallelism.context_parallel_ptrr_mask_key": "None",
    "parallelism.expert_parallel_degree": "1",
}

#: torchtitan's schedules of one stage a rank, and of several: ours by name.
SINGLE = {"1F1B": "1f1b", "GPipe": "gpipe"}
SEVERAL = {
    "Interleaved1F1B": "interleaved_1f1b",
    "InterleavedZeroBubble": "interleaved_zero_bubble",
    "ZBVZeroBubble": "zbv",
    "DualPipeV": "dualpipev",
}

#: Flags of `[sizes]` and `[precision]`, by torchtitan's names.
SIZES = {"training.global_batch_size": "batch", "training.seq_len": "seq"}
PRECISION = {
    "training.dtype": "state",
    "training.mixed_precision_param": "compute",
    "training.mixed_precision_reduce": "reduce",
}
LOCAL = "training.local_batch_size"
#: Longer ones do not fit into 64 bits.
MOST_DIGITS = 19

#: Why a flag has no word in a spec, where it is not at its default.
NO_WORD: Mapping[str, str] = {
    "parallelism.enable_fsdp_symm_mem": "a plan does not say which memory a collective uses",
    "parallelism.module_fqns_per_model_part": "a spec's `split` is in the card's words, and counts layers",
    "parallelism.pipeline_parallel_schedule_csv": 'write the spec\'s `schedule = "csv"` with a `split` of its own',
    "parallelism.context_parallel_ptrr_mask_key": "the ptrr balancer is not planned",
    "parallelism.expert_parallel_degree": "torchtitan's experts are not planned",
    "activation_checkpoint": "`[recompute]` names the modules; it is not read from a flag",
}


#: Flags of which some values have a word in a spec.
_WORDS: Mapping[str, tuple[str, ...]] = {
    "parallelism.context_parallel_load_balancer": ("headtail", "None"),
    "parallelism.fsdp_reshard_after_forward": ("default", "always", "never"),
}

#: Sections whose flags are the same in every recipe: their switches, then what takes a value.
_SWITCHES: Mapping[str, str] = {
    "checkpoint": "enable initial_load_model_only initial_load_in_hf initial_load_in_hf_quantized "
    "last_save_model_only last_save_in_hf enable_first_step_checkpoint create_seed_checkpoint load_only",
    "comm": "",
    "compile": "enable enable_async_tensor_parallel",
    "debug": "spmd_typechecking deterministic deterministic_warn_only moe_force_load_balance detect_anomaly "
    "batch_invariant print_config enable_structured_logging",
    "lr_scheduler": "",
    "metrics": "enable_tensorboard disable_color_printing save_for_all_ranks enable_wandb",
    "profiler": "enable_profiling enable_memory_snapshot",
    "training": "enable_cpu_offload disable_cuda_graphs gc_debug",
}
_VALUES: Mapping[str, str] = {
    "checkpoint": "async_mode folder interval initial_load_path export_dtype keep_latest_k load_step "
    "exclude_from_loading",
    "comm": "init_timeout_seconds train_timeout_seconds trace_buf_size save_traces_folder save_traces_file_prefix mode",
    "compile": "components backend",
    "debug": "seed save_config_file",
    "lr_scheduler": "warmup_steps total_steps decay_ratio decay_type min_lr_factor",
    "metrics": "log_freq save_tb_folder",
    "profiler": "save_traces_folder profile_freq profiler_repeat profiler_skip_first profiler_skip_first_wait "
    "profiler_active profiler_warmup memory_snapshot_freq save_memory_snapshot_folder memory_snapshot_max_entries",
    "training": "local_batch_size global_batch_size seq_len max_norm steps dtype mixed_precision_param "
    "mixed_precision_reduce gc_freq",
}
#: Flags without a section, and sections of which a recipe says which flags there are.
_ALONE = ("module", "config", "hf_assets_path", "dump_folder")
_RECIPES = ("activation_checkpoint", "dataloader", "loss", "optimizer", "override", "tokenizer", "validator")

SWITCHES = frozenset(f"{section}.{name}" for section, names in _SWITCHES.items() for name in names.split())
SWITCHES |= {name for name, default in DEFAULTS.items() if default in ("True", "False")}
VALUES = frozenset(f"{section}.{name}" for section, names in _VALUES.items() for name in names.split())
VALUES |= {*_ALONE, *DEFAULTS} - SWITCHES


class Asked:
    """The flags of a command line by torchtitan's names, and its defaults."""

    def __init__(self, *, flags: Sequence[str], bag: Bag) -> None:
        self.bag = bag
        self.line = shlex.join(flags)
        self.words = flags
        self.given: dict[str, Flag] = {flag.name: flag for flag in read_flags(flags)}
        self.replicate = self.count("parallelism.data_parallel_replicate_degree")
        self.shard = self.count("parallelism.data_parallel_shard_degree", least=-1)
        self.tp = self.count("parallelism.tensor_parallel_degree")
        self.cp = self.count("parallelism.context_parallel_degree")
        self.pp = self.count("parallelism.pipeline_parallel_degree")

    @property
    def ranks(self) -> int:
        """Of the whole mesh, with one part where the shard degree is what is left."""
        return self.replicate * max(self.shard, 1) * self.tp * self.cp * self.pp

    def value(self, key: str) -> str:
        """As given, or torchtitan's default."""
        return self.given[key].value if key in self.given else DEFAULTS.get(key, "None")

    def count(self, key: str, least: int = 1) -> int:
        """A whole number of at least `least`, not 0; anything else is a finding, and reads as 1."""
        value = self.value(key)
        if re.fullmatch(r"-?[0-9]{1,9}", value) and (number := int(value)) >= least and number:
            return number
        self.find(key, f"`{key}` = {value} is no such number")
        return 1

    def true(self, key: str) -> bool:
        """A switch."""
        return self.value(key).lower() in ("true", "1", "yes")

    def find(self, key: str, message: str, *notes: str, text: str = "") -> None:
        """A finding at a flag, or at the line where it should be."""
        source = Source(name="flags", text=self.line)
        span = self.given[key].span if key in self.given else source.span(0, len(source.text))
        self.bag.add(
            Diagnostic(code="not-expressible", message=message, label=Label(span=span, text=text), notes=notes)
        )

    def refuse(self) -> None:
        """A finding for each flag that a spec has no word for."""
        self._refuse_unknown()
        for key, flag in self.given.items():
            plain = flag.value in (DEFAULTS.get(key), "None", "none", "")
            if key in NO_WORD and not plain:
                self.find(key, f"`{key}` = {flag.value} has no word in a spec", NO_WORD[key])
            elif key == "parallelism.spmd_backend" and flag.value != "spmd_types":
                self.find(key, f"`{key}` = {flag.value}: plans run on `spmd_types` only")
        for key, known in _WORDS.items():
            if self.value(key) not in known:
                self.find(key, f"`{key}` = {self.value(key)} has no word in a spec", f"known: {', '.join(known)}")
        for word in _further(self.words):
            self.find("", f"`{word}` is a flag's second value, or stands alone; no spec is made of it")

    def _refuse_unknown(self) -> None:
        """A finding for each flag that torchtitan does not have, or that is given without a value."""
        bare = {flag.name for word in _bare(self.words) for flag in read_flags([word])}
        for key in self.given:
            section, dot, rest = key.partition(".")
            if key in VALUES and key in bare:
                self.find(key, f"`{key}` takes a value, and has none")
            elif key not in VALUES | SWITCHES and section not in _RECIPES:
                known = [*VALUES, *SWITCHES, *(f"{each}.{rest}" for each in _RECIPES)] if dot else _ALONE
                meant = near(key, sorted(known))
                self.find(key, f"torchtitan 0.3.0 has no flag `{key}`", text=f"`{meant}` is near" if meant else "")


def _bare(words: Sequence[str]) -> Iterator[str]:
    """Flags without a value behind them."""
    for word, after in zip(words, (*words[1:], "--"), strict=True):
        if word.startswith("--") and "=" not in word and after.startswith("--"):
            yield word


def _further(words: Sequence[str]) -> Iterator[str]:
    """Words that are neither a flag nor the value behind one."""
    for before, word in zip(("", *words), words, strict=False):
        value = before.startswith("--") and "=" not in before
        if not word.startswith("--") and not value and not re.fullmatch(r"activation[-_]checkpoint:\S+", word):
            yield word
