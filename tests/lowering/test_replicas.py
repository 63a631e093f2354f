"""Two replicas of a stage: which ranks hold them, in which order they are summed, what follows what."""

import pytest
import torch
from programs import Named
from torch import nn

from meshlang.lowering.replicas import Sums, pairs, states
from meshlang.pipeline.ir import Host, Program

ALONE = Program(
    ranks=1,
    stages=2,
    replicas=2,
    sequences=2,
    subsequences=1,
    hosts=tuple(Host(replica, stage, 0) for replica in (0, 1) for stage in (0, 1)),
    order=((),),
)


@pytest.mark.parametrize("ranks", [2, 4, 6])
def test_mirror_images_share_their_stages(ranks: int) -> None:
    """In BSIPipe the two copies of every stage lie on a rank and on its mirror image."""
    found = pairs(Named("bsipipe", ranks, 2, 2, 1).program())
    assert len(found) == 2 * ranks
    assert all(first + second == ranks - 1 for first, second in found.values())


def sums() -> Sums:
    """One rank with both copies of both stages, whose gradients are their replica's number plus one."""
    modules: dict[tuple[int, int], nn.Module] = {(r, k): nn.Linear(2, 2) for r in (0, 1) for k in (0, 1)}
    for (replica, _), module in modules.items():
        for parameter in module.parameters():
            parameter.grad = torch.full_like(parameter, replica + 1.0)
    return Sums(program=ALONE, rank=0, ranks=(0,), modules=modules, groups={})


def test_gradients_meet_at_the_first_replica() -> None:
    """After a step the first replica has the sum and the second has none."""
    both = sums()
    both.begin()
    for key in ((0, 0), (1, 0), (1, 1), (0, 1)):
        both.finished(*key)
    both.end()
    for (replica, _), module in both.modules.items():
        assert all((p.grad is None) if replica else bool((p.grad == 3).all()) for p in module.parameters())


def test_later_stages_go_first() -> None:
    """A stage that is ready waits for all later ones of its pair."""
    both = sums()
    both.begin()
    both.finished(0, 0)
    both.finished(1, 0)
    assert both.waiting == {frozenset({0}): [1, 0]}
    both.finished(1, 1)
    both.finished(0, 1)
    assert both.waiting == {frozenset({0}): []}


def test_lazy_sums_wait_for_the_end() -> None:
    """Where sums are not eager, nothing goes before the step has ended, and then all does."""
    both = sums()
    both.eager = False
    both.begin()
    for key in both.modules:
        both.finished(*key)
    assert both.waiting == {frozenset({0}): [1, 0]}
    both.end()
    assert all(p.grad is None for k in (0, 1) for p in both.modules[1, k].parameters())


def test_a_forgotten_stage_is_told() -> None:
    """A step whose gradients were not all summed does not end in silence."""
    both = sums()
    both.begin()
    with pytest.raises(AssertionError, match="were never summed"):
        both.end()


def test_the_second_replica_follows() -> None:
    """Weights and saved buffers of the second replica become the first's; other buffers stay."""
    both = sums()
    for number, module in enumerate(both.modules.values()):
        module.register_buffer("kept", torch.tensor(float(number)))
        module.register_buffer("own", torch.tensor(float(number)), persistent=False)
    both.follow()
    for stage in (0, 1):
        first, second = both.modules[0, stage], both.modules[1, stage]
        for mine, theirs in zip(states(second), states(first), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
        assert len(states(first)) == 3
        assert second.get_buffer("own") != first.get_buffer("own")
