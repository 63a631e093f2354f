"""A pipeline over gloo whose order cannot go on ends with a report, and does not hang."""

from meshlang.testing.ranks import RankPool


def test_a_wrong_order_over_gloo_is_reported(ranks: RankPool) -> None:
    """Within seconds both ranks say what both are at, and what each waits for."""
    reports = ranks.run("program_ranks:report", ranks=2)
    for report, seconds in reports:
        assert seconds < 20
        assert "rank 0: at B1.0@0, operation 3 of 4, waits for the gradient for B1.0@0 from rank 1" in report
        assert "rank 1: at F1.0@1, operation 3 of 4, waits for the input of F1.0@1 from rank 0" in report
