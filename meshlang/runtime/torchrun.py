"""What torchrun is told: how many processes here, how nodes find each other, how often to begin again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .interrupt import OnInterrupt, agent_words


class TorchrunError(Exception):
    """Flags for torchrun that do not go together, or not with the plan."""


@dataclass(frozen=True, kw_only=True)
class Torchrun:
    """Flags of torchrun that `meshlang launch` hands on under the same names; None leaves one out.

    Args:
        nnodes: the ranks of the plan lie on so many nodes, as many on each.
        max_restarts: so often all ranks start again after a failure.
        on_interrupt: "checkpoint" ends an interrupted run after its step, saved; a second signal ends it at once.
    """

    nnodes: int = 1
    node_rank: int | None = None
    rdzv_backend: str | None = None
    rdzv_endpoint: str | None = None
    rdzv_id: str | None = None
    master_addr: str | None = None
    master_port: int | None = None
    max_restarts: int = 0
    on_interrupt: OnInterrupt = "end"

    @property
    def first(self) -> bool:
        """Whether this is surely the node of rank 0, whose folder is the one that counts."""
        return self.nnodes == 1 or self.node_rank == 0

    def words(self, ranks: int) -> list[str]:
        """Arguments of torchrun for a plan of so many ranks.

        Raises:
            TorchrunError: the nodes cannot have as many ranks each, or cannot find each other.
        """
        if ranks % self.nnodes:
            raise TorchrunError(f"--nnodes {self.nnodes}: {ranks} ranks do not lie on so many nodes, as many on each")
        count = [f"--nproc-per-node={ranks // self.nnodes}", f"--max-restarts={self.max_restarts}"]
        return [*count, *agent_words(self.on_interrupt), *self._meeting()]

    def _meeting(self) -> Iterator[str]:
        said = {
            "rdzv-backend": self.rdzv_backend or ("c10d" if self.rdzv_endpoint and self.node_rank is None else None),
            "rdzv-endpoint": self.rdzv_endpoint,
            "rdzv-id": self.rdzv_id,
            "node-rank": self.node_rank,
            "master-addr": self.master_addr,
            "master-port": self.master_port,
        }
        if self.nnodes > 1 and not (self.rdzv_endpoint or self.master_addr):
            raise TorchrunError(
                f"--nnodes {self.nnodes}: the nodes meet at --rdzv-endpoint HOST:PORT, "
                "or at --master-addr HOST --master-port PORT with a --node-rank each"
            )
        if self.max_restarts and self.nnodes > 1 and said["rdzv-backend"] in (None, "static"):
            raise TorchrunError(
                "--max-restarts: nodes that meet at a fixed address would find what the first attempt left there; "
                "with --rdzv-endpoint HOST:PORT alone they meet anew"
            )
        if self.nnodes == 1 and not any(value is not None for value in said.values()):
            yield "--standalone"
            return
        yield f"--nnodes={self.nnodes}"
        for name, value in said.items():
            if value is not None:
                yield f"--{name}={value}"
