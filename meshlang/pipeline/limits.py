"""How much a rank may hold: as much as under Seq1F1B, or as the closed form of whole units where that is more.

With two stages of a replica a rank, and up to half as many subsequences as ranks, both are the same. With three
and more the closed form (`zigzag`) holds less: gradients of weights that are put off fill that room, and are
there when a rank has nothing else to do.
"""

from __future__ import annotations

from .costs import Costs
from .live import peak_of_row
from .sequence_orders import row_of
from .simulate import lengths_of


def limit(ranks: int, chunks: int, subsequences: int, *, replicas: int, shares: int | None = None) -> int:
    """The most operations whose activations a rank holds: Seq1F1B's, or the lead of whole units where that is more.

    Args:
        shares: as many ranks Seq1F1B has, each one of so many parts of the model; `ranks` without it.
    """
    shares = shares or ranks
    theirs = chunks * ranks * (shares + subsequences - 1) // shares
    return max(theirs, closed(ranks, chunks, subsequences, replicas=replicas))


def closed(ranks: int, chunks: int, subsequences: int, *, replicas: int) -> int:
    """What a rank holds with whole backwards, in operations, where units are whole (`zigzag.lead`)."""
    unit = ranks // replicas
    if subsequences <= unit:
        return chunks * ranks + 2 * subsequences - 2
    return replicas * chunks * subsequences + 2 * unit - 2


def is_late(ranks: int, chunks: int, subsequences: int, *, replicas: int, shares: int | None = None) -> bool:
    """Whether `hold` changes nothing: units are whole, and fill the limit."""
    numbers = ranks, chunks, subsequences
    whole = are_whole(ranks, subsequences, replicas=replicas)
    return whole and limit(*numbers, replicas=replicas, shares=shares) == closed(*numbers, replicas=replicas)


def are_whole(ranks: int, subsequences: int, *, replicas: int) -> bool:
    """Whether no sequence straddles two units, or each begins and ends with one."""
    unit = ranks // replicas
    return unit % subsequences == 0 or subsequences % unit == 0


def room(ranks: int, chunks: int, subsequences: int, *, replicas: int, costs: Costs) -> float:
    """The limit in tokens, as sequences: operations of Seq1F1B's mean tokens at its peak, where they differ."""
    most, shares = limit(ranks, chunks, subsequences, replicas=replicas, shares=costs.shares), costs.shares or ranks
    row = row_of(0, shares, 1, shares, subsequences)
    peak = peak_of_row(row, lengths_of(subsequences, costs) or (1 / subsequences,) * subsequences)
    return most / (shares + subsequences - 1) * peak
