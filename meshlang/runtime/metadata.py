"""torch's own account of a checkpoint, read without running what a file says.

`.metadata` is a pickle, and a pickle may call anything. A launch reads it before anyone has decided
to trust the folder, so only the names that such an account consists of are ever looked up.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

METADATA = ".metadata"

_ACCOUNT = {
    "Metadata",
    "MetadataIndex",
    "TensorStorageMetadata",
    "BytesStorageMetadata",
    "ChunkStorageMetadata",
    "TensorProperties",
    "StorageMeta",
    "_MEM_FORMAT_ENCODING",
}
#: module -> names of it that an account may use; of torch its element types too.
_KNOWN = {
    "torch.distributed.checkpoint.metadata": _ACCOUNT,
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo", "_StoragePrefix"},
    "torch.serialization": {"_get_layout"},
    "torch": {"Size", "device"},
    "pathlib": {"Path", "PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath"},
    "collections": {"OrderedDict"},
    "builtins": {"set", "frozenset"},
}


class StrangerError(pickle.UnpicklingError):
    """An account names something that no account needs."""


def _member(kind: Any, name: str) -> Any:
    """What `getattr` is in an account: Python 3.11.2, for one, saves a member of an enumeration as an attribute of it.

    Raises:
        StrangerError: it is asked for anything else.
    """
    from torch.distributed.checkpoint.metadata import _MEM_FORMAT_ENCODING

    if kind is not _MEM_FORMAT_ENCODING or name not in _MEM_FORMAT_ENCODING.__members__:
        raise StrangerError("builtins.getattr")
    return _MEM_FORMAT_ENCODING[name]


class _Reader(pickle.Unpickler):
    """Looks up nothing but the words of an account."""

    def find_class(self, module: str, name: str) -> Any:
        """The object of a known name.

        Raises:
            StrangerError: for any other; nothing is imported for it.
        """
        if (module, name) == ("builtins", "getattr"):
            return _member
        if name in _KNOWN.get(module, ()) or _is_type(module, name):
            return super().find_class(module, name)
        raise StrangerError(f"{module}.{name}")


def _is_type(module: str, name: str) -> bool:
    """Whether this is one of torch's element types."""
    import torch

    return module == "torch" and isinstance(vars(torch).get(name), torch.dtype)


def read_metadata(path: Path) -> Any:
    """The account of the checkpoint in a folder, a `torch.distributed.checkpoint` Metadata.

    Raises:
        StrangerError: it names what no account needs. Other errors: it is damaged, in any way.
    """
    from torch.distributed.checkpoint.metadata import Metadata

    with (path / METADATA).open("rb") as file:
        found = _Reader(file).load()
    if not isinstance(found, Metadata):
        raise pickle.UnpicklingError(f"{type(found).__name__} is no account of a checkpoint")
    return found


def values(path: Path, account: Any, names: Iterable[str]) -> dict[str, Any]:
    """The plain values of these names that a checkpoint has: numbers, words and what is made of them.

    They are read by torch's reader of weights alone, which runs nothing; any other value is left out.
    """
    import torch

    found, wanted = {}, set(names)
    for index, where in (account.storage_data or {}).items():
        if index.fqn in wanted and index.offset is None:
            with (path / where.relative_path).open("rb") as file:
                file.seek(where.offset)
                written = file.read(where.length)
            with suppress(pickle.UnpicklingError, RuntimeError, EOFError):
                found[index.fqn] = torch.load(BytesIO(written), weights_only=True)
    return found
