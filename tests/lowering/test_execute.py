"""Programs, run on threads: values are those of whole sequences in one process, whatever the order."""

import pytest
import torch
from pipelined import TOKENS, Case, errors, run, whole
from programs import ALL, Named, cases, in_halves

from meshlang.lowering.parts import even
from meshlang.pipeline.live import peak_counts

BOUNDS = {torch.float64: 1e-12, torch.float32: 5e-6}

#: Lengths that differ, by their number.
UNEVEN = {1: (24,), 2: (15, 9), 3: (13, 6, 5), 4: (9, 4, 6, 5)}

pytestmark = pytest.mark.parity

#: Both element types where all cases run; of a sample the one that shows more.
DOUBLE, SINGLE = ((torch.float64, torch.float32),) * 2 if ALL else ((torch.float64,), (torch.float32,))


@pytest.mark.parametrize("dtype", DOUBLE, ids=str)
@pytest.mark.parametrize("named", cases(), ids=str)
def test_gradients_are_those_of_whole_sequences(named: Named, dtype: torch.dtype) -> None:
    """Losses and all gradients, documents packed in each sequence; as many forwards are live as planned."""
    program = named.program()
    case = Case(program=program, lengths=even(TOKENS, program.subsequences), documents=(5, 12, 7), dtype=dtype)
    worst, ran = errors(case)
    assert worst <= BOUNDS[dtype]
    assert tuple(each.outcome.peak for each in ran) == peak_counts(program)


SPLIT = [each for each in cases() if each.subsequences > 1]


@pytest.mark.parametrize("named", SPLIT if ALL else SPLIT[:3], ids=str)
@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("late", [None, 0, 3])
@pytest.mark.parametrize("dtype", SINGLE, ids=str)
def test_unequal_halves_and_checkpoints(named: Named, checkpointed: bool, late: int | None, dtype: torch.dtype) -> None:
    """Unequal subsequences, backwards in two with weights late, forwards computed again: gradients agree."""
    program = named.program() if late is None else in_halves(named.program(), late)
    case = Case(
        program=program,
        lengths=UNEVEN[named.subsequences],
        documents=(7, 17),
        checkpointed=checkpointed,
        dtype=dtype,
        window=1,
    )
    worst, _ = errors(case)
    assert worst <= BOUNDS[dtype]


@pytest.mark.parametrize("late", [0, 2])
def test_halves_with_checkpoints_are_exact(late: int) -> None:
    """In float64, weights late and forwards computed again for both halves give the whole sequence's gradients."""
    program = in_halves(Named("bsipipe", 2, 2, 2, 3).program(), late)
    worst, _ = errors(Case(program=program, lengths=(10, 8, 6), checkpointed=True))
    assert worst <= BOUNDS[torch.float64]


def test_forwards_alone_give_the_losses() -> None:
    """Without backwards the losses are the same, and no store of keys is left."""
    program = Named("bsipipe", 2, 2, 2, 2).program()
    case = Case(program=program, lengths=(14, 10))
    ran = run(case, train=False)
    losses, _ = whole(case)
    found = {sequence: loss for each in ran for sequence, loss in each.outcome.losses.items()}
    assert found.keys() == losses.keys()
    for sequence, loss in losses.items():
        torch.testing.assert_close(found[sequence], loss, rtol=1e-12, atol=0)
    assert not any(carrying.store.kept for each in ran for carrying in each.carrying)
    assert all(not gradients for each in ran for gradients in each.gradients.values())


def test_no_graph_outlives_its_backward() -> None:
    """After a step no store of keys has an entry, on any rank."""
    ran = run(Case(program=Named("seqv", 2, 2, 2, 3).program(), lengths=(8, 8, 8)))
    assert sum(len(each.carrying) for each in ran) == 4
    assert not any(carrying.store.kept for each in ran for carrying in each.carrying)
