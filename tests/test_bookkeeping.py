"""What a trial costs besides compiling and measuring does not grow; of the sampler's model, test_model.py shows it."""

from __future__ import annotations

from bookkeeping import run


def test_a_trial_of_a_long_search_costs_no_more_than_one_of_a_short() -> None:
    """Proposed, told and stored: 600 trials, by their CPU time and the memory they leave."""

    def growth() -> tuple[float, float]:
        rows = run(trials=600, sampler="random", every=150)
        assert [row[0] for row in rows] == [150, 300, 450, 600]
        return rows[3][2] / rows[1][2], rows[3][3] - rows[1][3]

    for _ in range(3):  # others have the cores at times
        slower, more_mb = growth()
        if slower < 1.5 and more_mb < 8:
            return
    raise AssertionError(f"the last trials took {slower:.2f} times as long as earlier ones, and {more_mb:.0f} MB more")
