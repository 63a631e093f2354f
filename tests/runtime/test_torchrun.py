"""Flags that a launch hands on to torchrun, and what a failure is put down to."""

import signal

import pytest

from meshlang.runtime.agent import cause
from meshlang.runtime.progress import Fault
from meshlang.runtime.torchrun import Torchrun, TorchrunError


def test_one_node_stands_alone() -> None:
    """Without a word of nodes all ranks are here, and they meet at a free port."""
    assert Torchrun(max_restarts=2).words(4) == ["--nproc-per-node=4", "--max-restarts=2", "--standalone"]


def test_nodes_share_the_ranks() -> None:
    """Two nodes have half of the ranks each, and meet over c10d at one endpoint."""
    assert Torchrun(nnodes=2, rdzv_endpoint="a:29400").words(8) == [
        "--nproc-per-node=4",
        "--max-restarts=0",
        "--nnodes=2",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=a:29400",
    ]


def test_a_fixed_address_is_handed_on() -> None:
    """A master's address and a node's rank go to torchrun under the same names."""
    words = Torchrun(nnodes=2, node_rank=0, master_addr="a", master_port=29500).words(2)
    assert words[2:] == ["--nnodes=2", "--node-rank=0", "--master-addr=a", "--master-port=29500"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (Torchrun(nnodes=3, rdzv_endpoint="a:1"), "4 ranks do not lie on so many nodes"),
        (Torchrun(nnodes=2), "the nodes meet at --rdzv-endpoint HOST:PORT"),
        (Torchrun(nnodes=2, node_rank=0, master_addr="a", max_restarts=1), "they meet anew"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(asked: Torchrun, said: str) -> None:
    """Nodes that cannot share the ranks, meet, or meet again are refused before a process starts."""
    with pytest.raises(TorchrunError, match=said):
        asked.words(4)


def test_a_signal_is_the_cause_and_not_its_echo() -> None:
    """The rank that was killed is named, though another reported its lost connection first."""
    echo = Fault(rank=0, text="RuntimeError: Connection closed by peer", time=1.0, echo=True)
    found = cause([echo], {0: 1, 2: -signal.SIGKILL})
    assert (found.rank, found.text) == (2, "was killed by SIGKILL")


def test_an_exception_is_the_cause_of_what_follows() -> None:
    """The first exception that is no echo is named, whichever rank torchrun saw end first."""
    echo = Fault(rank=0, text="RuntimeError: Connection closed by peer", time=1.0, echo=True)
    real = Fault(rank=3, text="ValueError: seven", time=2.0)
    found = cause([echo, real], {0: 1})
    assert (found.rank, found.text) == (3, "failed: ValueError: seven")
