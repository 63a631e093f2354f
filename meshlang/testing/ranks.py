"""A pool of processes that play the ranks of small meshes over gloo.

Starting a rank is dear (the import of torch and of torchtitan), forking one is cheap. So the
pool's processes are forked from a server that has imported both, and each forks again for
every call: a call has processes, groups and module state of its own and leaves nothing behind.
"""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection, wait
from typing import Any

#: Imported once, by the server that ranks are forked from.
PRELOAD = ("meshlang.testing.preload",)

#: For processes that share a few cores and no accelerator.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
}


class RankError(RuntimeError):
    """A call failed: the traceback of the first rank that raised, died or gave no answer in time."""


@dataclass(frozen=True, kw_only=True)
class _Rank:
    process: Any
    pipe: Connection


@dataclass(frozen=True, kw_only=True)
class _Request:
    target: str
    args: tuple[Any, ...]
    ranks: int
    store: str
    limit: float


class RankPool:
    """Processes that run a function on the first n ranks, with a fresh gloo group each time.

    Use it as a context manager, or close it. The processes start at the first call.

    Args:
        size: the most ranks a call may ask for.
        timeout: seconds that one call may take; a call may say otherwise.
    """

    def __init__(self, size: int, *, timeout: float = 120.0) -> None:
        self.size = size
        self._timeout = timeout
        self._ranks: list[_Rank] = []
        self._calls = 0

    def __enter__(self) -> RankPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, target: str, *args: Any, ranks: int | None = None, timeout: float | None = None) -> list[Any]:
        """What `target` returns on each rank, in rank order.

        Args:
            target: "package.module:function", importable by the ranks.
            args: plain data, the same for all ranks.
            ranks: how many take part; all of the pool without it.
            timeout: seconds for this call.

        Raises:
            RankError: a rank raised, or died, or gave no answer in time. The pool stays usable.
        """
        count = self.size if ranks is None else ranks
        if not 1 <= count <= self.size:
            raise ValueError(f"{count} ranks asked of a pool of {self.size}")
        self._start()
        limit = self._timeout if timeout is None else timeout
        with tempfile.TemporaryDirectory(prefix="ranks-") as folder:
            store = os.path.join(folder, "store")
            request = _Request(target=target, args=args, ranks=count, store=store, limit=limit)
            try:
                for rank in self._ranks[:count]:
                    rank.pipe.send(request)
            except ConnectionError as error:
                self.close()
                raise RankError(f"{target}: a rank died before it was asked") from error
            return self._collect(request)

    def _collect(self, request: _Request) -> list[Any]:
        """Every rank's answer; a rank answers within the limit, if only that it did not."""
        pipes = {self._ranks[index].pipe: index for index in range(request.ranks)}
        answers: dict[int, Any] = {}
        failures: list[tuple[int, str]] = []
        while pipes:
            for pipe in wait(list(pipes)):
                assert isinstance(pipe, Connection)
                index = pipes.pop(pipe)
                good, value = _receive(pipe)
                if good:
                    answers[index] = value
                else:
                    failures.append((index, value))
        if failures:
            index, text = min(failures, key=lambda failure: _is_echo(failure[1]))
            raise RankError(f"{request.target} on rank {index} of {request.ranks}: {text}")
        return [answers[index] for index in range(request.ranks)]

    def close(self) -> None:
        """End every process; a closed pool starts anew when it is used again."""
        ranks, self._ranks = self._ranks, []
        for rank in ranks:
            rank.pipe.close()
        for rank in ranks:
            rank.process.join(timeout=10)
            if rank.process.is_alive():
                rank.process.kill()
                rank.process.join()
            rank.process.close()

    def _start(self) -> None:
        if self._ranks and not all(rank.process.is_alive() for rank in self._ranks):
            self.close()
        if self._ranks:
            return
        context = get_context("forkserver")
        context.set_forkserver_preload(list(PRELOAD))
        with _environment():
            for index in range(self.size):
                here, there = context.Pipe()
                process = context.Process(target=_serve, args=(there, index), daemon=True)
                process.start()
                there.close()
                self._ranks.append(_Rank(process=process, pipe=here))


@contextmanager
def _environment() -> Iterator[None]:
    """Variables that processes started inside inherit."""
    before = {name: os.environ.get(name) for name in _ENVIRONMENT}
    os.environ.update(_ENVIRONMENT)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _receive(pipe: Connection) -> tuple[bool, Any]:
    try:
        return pickle.loads(pipe.recv_bytes())
    except (EOFError, ConnectionError):
        return False, "its process died"


def _is_echo(text: str) -> bool:
    """Whether a failure is only that another rank had gone."""
    return "onnection closed by peer" in text or "onnection reset by peer" in text


def _serve(pipe: Connection, index: int) -> None:
    """A rank of the pool: answer requests until the pipe closes."""
    with suppress(EOFError, ConnectionError):
        while True:
            request = pipe.recv()
            with suppress(Exception):
                importlib.import_module(request.target.partition(":")[0])
            pipe.send_bytes(_fork(request, index))


def _fork(request: _Request, index: int) -> bytes:
    """The answer of a process forked for this request, or that it gave none."""
    here, there = Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        here.close()
        there.send_bytes(_answer(request, index))
        os._exit(0)
    there.close()
    try:
        if here.poll(request.limit):
            return here.recv_bytes()
        return pickle.dumps((False, f"no answer within {request.limit:g} s"))
    except EOFError:
        return pickle.dumps((False, "its process died"))
    finally:
        here.close()
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _answer(request: _Request, index: int) -> bytes:
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import FileStore

    torch.set_num_threads(1)  # also renews torch's thread pool, which a fork leaves without threads
    try:
        dist.init_process_group(
            "gloo",
            store=FileStore(request.store, request.ranks),
            rank=index,
            world_size=request.ranks,
            timeout=timedelta(seconds=request.limit),
        )
        module, _, name = request.target.partition(":")
        value = getattr(importlib.import_module(module), name)(*request.args)
        dist.barrier()
        return pickle.dumps((True, value))
    except BaseException:
        return pickle.dumps((False, "\n" + traceback.format_exc()))


def each_rank(values: Sequence[Any]) -> Any:
    """The value that all ranks gave; they must agree."""
    first = values[0]
    assert all(value == first for value in values), values
    return first
