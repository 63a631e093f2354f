"""Seconds of one pass of some modules: what they compute, and the calls that nothing hides.

forward     products and attention at their shares of the peak, and its values written and read once: 2 x touched
backward    twice the products, 2.5 times the attention (FlashAttention-2, arXiv 2307.08691: 5 products for 2),
            values read, their gradients written and read: 3 x touched; and what is recomputed, a forward again
calls       at module boundaries all wait. The exchange of keys and values waits beyond `overlap` of the attention,
            where a strategy sends while it computes; else all of it does
"""

from __future__ import annotations

from dataclasses import dataclass

from .machine import Machine
from .work import Work

#: Strategies that compute on the keys that are there while others come.
HIDING = ("ring_attention", "csbp")
#: A backward of attention, in forwards.
ATTENTION_BACKWARD = 2.5


@dataclass(frozen=True, kw_only=True)
class Calls:
    """Seconds of a pass's calls: at module boundaries, and of an exchange within attention."""

    forward: float = 0.0
    backward: float = 0.0
    exchange_forward: float = 0.0
    exchange_backward: float = 0.0

    def __add__(self, other: Calls) -> Calls:
        return Calls(**{name: getattr(self, name) + getattr(other, name) for name in Calls.__dataclass_fields__})

    def __mul__(self, times: float) -> Calls:
        return Calls(**{name: getattr(self, name) * times for name in Calls.__dataclass_fields__})


@dataclass(frozen=True, kw_only=True)
class Pass:
    """Seconds of one pass on one rank.

    computing: forward and backward; `again` beside it. boundary, exchange: of calls that nothing hides.
    forward_attention, backward_attention: the part of each that grows with the keys that a query sees.
    weights: the part of the backward that may be put off.
    """

    computing_forward: float
    computing_backward: float
    again: float
    boundary_forward: float
    boundary_backward: float
    exchange_forward: float
    exchange_backward: float
    forward_attention: float
    backward_attention: float
    weights: float

    @property
    def forward(self) -> float:
        """All of it."""
        return self.computing_forward + self.boundary_forward + self.exchange_forward

    @property
    def backward(self) -> float:
        """All of it, with what runs again."""
        return self.computing_backward + self.again + self.boundary_backward + self.exchange_backward

    @property
    def seconds(self) -> float:
        """Both."""
        return self.forward + self.backward


def passed(work: Work, calls: Calls, machine: Machine, hides: bool) -> Pass:
    """What one pass of this work with these calls takes."""
    products, attention = machine.product_time(work.products), machine.attention_time(work.attention)
    touch = machine.touch_time(work.touched)
    again = machine.attention_time(work.again_attention)
    again_rest = machine.product_time(work.again_products) + 2 * machine.touch_time(work.again_touched)
    behind = machine.overlap if hides else 0.0
    back = ATTENTION_BACKWARD * attention
    return Pass(
        computing_forward=products + attention + 2 * touch,
        computing_backward=2 * products + back + 3 * touch,
        again=again + again_rest,
        boundary_forward=calls.forward,
        boundary_backward=calls.backward,
        exchange_forward=max(0.0, calls.exchange_forward - behind * attention),
        exchange_backward=max(0.0, calls.exchange_backward - behind * (back + again)),
        forward_attention=attention,
        backward_attention=back + again,
        weights=products + 1.5 * touch,
    )


@dataclass(frozen=True, kw_only=True)
class Bulk:
    """Seconds of a step's calls for weights and gradients, and how many passes each of them may hide under."""

    gathered: float = 0.0
    gather_passes: float = 0.0
    summed: float = 0.0
    sum_passes: float = 0.0

    def exposed(self, each: Pass, machine: Machine) -> float:
        """What computing does not hide: gathers of forwards under forwards, the rest under backwards."""
        forward = self.gathered - machine.overlap * each.computing_forward * self.gather_passes
        backward = self.summed - machine.overlap * (each.computing_backward + each.again) * self.sum_passes
        return max(0.0, forward) + max(0.0, backward)
