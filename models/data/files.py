"""Which local files a run reads, in an order that every rank agrees on."""

import hashlib
import os
import sysconfig
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

STANDARD_LIBRARY = ("*.py",)
FOLDER = ("*.md", "*.py", "*.txt")
SKIPPED = ("__pycache__", "site-packages", "dist-packages")


def find_files(path: str, patterns: tuple[str, ...] = ()) -> tuple[Path, ...]:
    """Every file of a folder that matches a pattern and is not empty, by relative name.

    A pattern is a shell pattern of the file's name or of its path below the folder; its `*`
    crosses folders. Hidden folders, installed packages and caches are left out.

    Args:
        path: a folder, a file, or "" for the standard library of the running Python.
        patterns: none means *.py of the standard library, and *.md, *.py, *.txt of a folder.

    Raises:
        ValueError: there is no such path, or no file in it to read.
    """
    root = Path(path or sysconfig.get_paths()["stdlib"])
    if root.is_file():
        found = (root,)
    elif root.is_dir():
        patterns = patterns or (FOLDER if path else STANDARD_LIBRARY)
        found = tuple(sorted(_matching(root, patterns), key=lambda file: file.relative_to(root).as_posix()))
    else:
        raise ValueError(f"there is no file or folder {root}")
    if not found:
        raise ValueError(f"no file in {root} matches {' or '.join(patterns)}")
    filled = tuple(file for file in found if file.stat().st_size)
    if not filled:
        raise ValueError(f"every file found at {root} is empty ({len(found)} found)")
    return filled


def digest(files: tuple[Path, ...]) -> str:
    """A short name for these files: it changes with a file's name, size or place in the order."""
    text = "\n".join(f"{file.name} {file.stat().st_size}" for file in files)
    return hashlib.sha256(text.encode("utf-8", errors="surrogateescape")).hexdigest()[:16]


def _matching(root: Path, patterns: tuple[str, ...]) -> Iterator[Path]:
    for folder, below, names in os.walk(root):
        below[:] = [name for name in below if name not in SKIPPED and not name.startswith(".")]
        for name in names:
            file = Path(folder, name)
            relative = file.relative_to(root).as_posix()
            if any(fnmatchcase(name, p) or fnmatchcase(relative, p) for p in patterns):
                yield file
