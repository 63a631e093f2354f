"""Work inside which no garbage is looked for."""

import gc

import pytest

from meshlang.garbage import uncollected


def test_nothing_is_collected_inside() -> None:
    """Garbage is not looked for inside, and is again behind it, after an error too."""
    assert gc.isenabled()
    with uncollected():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ImportError), uncollected():
        raise ImportError
    assert gc.isenabled()


def test_what_was_off_stays_off() -> None:
    """A process that collects nothing by itself goes on so."""
    gc.disable()
    try:
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
