"""Texts come from files, and from pipes that somebody writes to."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Timer

import pytest

from meshlang.source import MOST_BYTES, Source


@pytest.mark.parametrize("late", [False, True], ids=["written before", "written after"])
def test_a_pipe_is_read_to_its_end(late: bool) -> None:
    """What another program writes is a text, as in `meshlang check <(program)`, also where it is still to come."""
    reader, writer = os.pipe()

    def write() -> None:
        os.write(writer, b"meshlang = 1\n")
        os.close(writer)

    timer = Timer(0.1 if late else 0, write)
    timer.start()
    if not late:
        timer.join()
    assert Source.read(f"/dev/fd/{reader}").text == "meshlang = 1\n"
    os.close(reader)


def test_a_pipe_without_a_writer_is_an_error(tmp_path: Path) -> None:
    """It would be waited for forever."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="nobody writes to"):
        Source.read(tmp_path / "pipe")


def test_too_much_is_not_read() -> None:
    """Of what has more bytes than a spec, the beginning is kept."""
    found = Source.decode("-", b"x" * (MOST_BYTES + 1))
    assert found.too_large
    assert len(found.text) < 100
