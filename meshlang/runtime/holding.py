"""The folder of a run's checkpoints: it can be written, and one launch at a time writes it.

Two runs that save in one folder would write the same files, and a checkpoint of both would look whole.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .checkpoints import CheckpointError


@contextmanager
def held(folder: str) -> Iterator[None]:
    """The folder is this process's inside; the system lets it go however the process ends.

    Raises:
        CheckpointError: nothing can be written there, or another launch writes there.
    """
    import fcntl

    handle = _writable(folder)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        message = f"another launch saves its checkpoints in {folder}, and is not over"
        away = "both would write the same files: wait for it, or save elsewhere: --dump_folder NEW"
        raise CheckpointError("checkpoint-folder", message, (away,)) from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        told = f"{folder} cannot be kept from other launches ({reason}): none may save there while this one runs"
        print(f"meshlang: {told}", file=sys.stderr)
    try:
        yield
    finally:
        os.close(handle)


def _writable(folder: str) -> int:
    """A handle of the folder, made where it was not, in which a file was made and taken away."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        return os.open(folder, os.O_RDONLY)
    except OSError as error:
        message = f"no checkpoint can be saved in {folder}: {error.strerror or type(error).__name__}"
        elsewhere = "save elsewhere: --dump_folder NEW"
        raise CheckpointError("checkpoint-folder", message, (elsewhere,)) from error
