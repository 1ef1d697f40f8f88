from __future__ import annotations

import itertools
import math
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from workbench.foundation.errors import ArgumentError, DataError
from workbench.runs.decisions import Limits, decide_from_files, read_curves, read_floor

BASELINE = {"1": 1.00, "2": 1.01, "3": 0.99, "4": 1.00}


def write(path: Path, results: dict[str, float], *, steps: int = 100) -> Path:
    """Write runs that have a value at half of their steps, and their result."""
    lines = ["run,step,value"]
    for run, value in results.items():
        lines += [f"{run},{steps // 2},{value + 1}", f"{run},{steps},{value}"]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def baseline(tmp_path: Path) -> Path:
    return write(tmp_path / "baseline.csv", BASELINE)


def candidate_of(tmp_path: Path, *values: float) -> Path:
    return write(tmp_path / "candidate.csv", {str(num): value for num, value in enumerate(values)})


@pytest.fixture
def floor(tmp_path: Path) -> Path:
    random = np.random.default_rng(1)
    lines = ["group,run,step,val_loss"]
    for group in range(12):
        for run in range(8):
            lines += [f"{group},{run},50,3.0", f"{group},{run},100,{random.normal(1, 0.01)}"]
    path = tmp_path / "floor.csv"
    path.write_text("\n".join(lines))
    return path


def test_smaller_is_better_unless_the_goal_says_otherwise(tmp_path: Path, baseline: Path) -> None:
    candidate = candidate_of(tmp_path, 0.9, 0.91, 0.89)
    answer = decide_from_files(baseline, candidate)
    assert answer.decision == "better"
    assert answer.effect == pytest.approx(0.1)
    answer = decide_from_files(baseline, candidate, goal="maximize")
    assert answer.decision == "not better"
    assert answer.effect == pytest.approx(-0.1)


def test_a_run_that_stops_earlier_is_no_result(tmp_path: Path, baseline: Path) -> None:
    candidate = candidate_of(tmp_path, 0.97, 0.985)
    with candidate.open("a") as file:
        file.write("5,50,2.0\n")
    answer = decide_from_files(baseline, candidate)
    assert answer.effect == pytest.approx(1.0 - 0.9775)
    assert answer.num_candidate == 2
    assert list(answer.notes) == [
        "candidate: run 5 did not reach the budget of 100 steps. A curve sharpens the probability,"
        " but it is not a result"
    ]


def test_the_longest_run_of_both_files_sets_the_budget(tmp_path: Path, baseline: Path) -> None:
    longer = write(tmp_path / "candidate.csv", {"a": 0.5}, steps=200)
    answer = decide_from_files(baseline, longer)
    assert (answer.num_baseline, answer.num_candidate) == (0, 1)
    assert (answer.decision, answer.effect) == ("more", None)


def test_the_curve_of_an_unfinished_run_moves_the_probability(tmp_path: Path) -> None:
    """The result is the value at half of the steps, less 1 and a little noise."""
    random = np.random.default_rng(2)

    def lines(first: int, means: list[float]) -> list[str]:
        rows = []
        for run, middle in enumerate(means, first):
            rows += [f"{run},50,{middle + 1}", f"{run},100,{middle + random.normal(0, 0.001)}"]
        return rows

    path, sides = tmp_path / "baseline.csv", [0.99, 1.0, 1.01, 1.02, 0.98, 1.0]
    path.write_text("\n".join(["run,step,value", *lines(0, sides)]))
    finished = lines(0, [0.985, 0.99])
    probabilities = {}
    for name, rows in {"none": [], "good": ["7,50,1.93"], "bad": ["7,50,2.05"]}.items():
        candidate = tmp_path / f"{name}.csv"
        candidate.write_text("\n".join(["run,step,value", *finished, *rows]))
        answer = decide_from_files(path, candidate)
        probabilities[name] = answer.probability
        assert answer.effect == pytest.approx(0.0125, abs=0.002)
    assert probabilities["bad"] < probabilities["none"] < probabilities["good"]


def test_curves_that_predict_nothing_do_not_count(tmp_path: Path, baseline: Path) -> None:
    rows = [f"{run},50,3.0\n{run},100,{value}" for run, value in BASELINE.items()]
    baseline.write_text("\n".join(["run,step,value", *rows]))
    candidate = tmp_path / "candidate.csv"
    finished = "run,step,value\n1,50,3.0\n1,100,0.97\n2,50,3.0\n2,100,0.985\n"
    candidate.write_text(finished)
    plain = decide_from_files(baseline, candidate)
    candidate.write_text(f"{finished}5,50,1.0\n")
    assert decide_from_files(baseline, candidate).to_json() == plain.to_json()


def test_the_floor_decides_with_a_single_run_of_the_baseline(tmp_path: Path, floor: Path) -> None:
    baseline = write(tmp_path / "single.csv", {"1": 1.0})
    candidate = candidate_of(tmp_path, 0.9)
    assert decide_from_files(baseline, candidate).decision == "more"
    answer = decide_from_files(baseline, candidate, floor)
    assert answer.decision == "better"
    assert answer.floor is not None
    assert answer.floor.deviation == pytest.approx(0.01, rel=0.2)
    assert (answer.floor.num_groups, answer.floor.num_trainings) == (12, 96)


def test_only_finished_finite_runs_of_a_group_are_in_the_floor(tmp_path: Path) -> None:
    path = tmp_path / "floor.csv"
    path.write_text(
        "group,run,step,value\na,1,5,3\na,1,9,1\na,2,9,nan\na,3,5,7\na,4,9,2\nb,1,3,4\n"
    )
    groups = read_floor(path)
    assert [(group.values, group.budget) for group in groups] == [([1.0, 2.0], 9.0), ([4.0], 3.0)]


def test_a_floor_without_repeats_is_noted(tmp_path: Path, baseline: Path) -> None:
    path = tmp_path / "floor.csv"
    path.write_text("group,run,step,value\na,1,9,3\nb,1,9,4\n")
    answer = decide_from_files(baseline, candidate_of(tmp_path, 0.9), path)
    assert answer.floor is None
    assert "floor.csv is not used: no group has two finished runs" in answer.notes[0]


def test_a_candidate_that_diverges_is_not_better(tmp_path: Path, baseline: Path) -> None:
    answer = decide_from_files(baseline, candidate_of(tmp_path, 0.9, math.nan, 0.9))
    assert (answer.decision, answer.probability) == ("not better", 0)
    assert (answer.num_candidate, answer.more_runs) == (3, 0)
    assert "run 1 diverged" in answer.notes[0]


def test_a_run_that_ends_with_nan_diverged_and_is_not_unfinished(
    tmp_path: Path, baseline: Path
) -> None:
    candidate = candidate_of(tmp_path, 0.9, 0.9)
    with candidate.open("a") as file:
        file.write("5,20,inf\n")
    assert decide_from_files(baseline, candidate).decision == "not better"


def test_a_candidate_may_diverge_as_often_as_the_baseline(tmp_path: Path) -> None:
    baseline = write(tmp_path / "b.csv", {"1": 1.0, "2": 1.01, "3": math.nan, "4": 0.99})
    rare = decide_from_files(baseline, candidate_of(tmp_path, 0.5, 0.5, 0.51, math.nan))
    assert rare.decision == "better"
    early = decide_from_files(baseline, candidate_of(tmp_path, 0.5, math.nan, 0.5))
    assert (early.decision, early.more_runs) == ("more", 1)
    often = decide_from_files(baseline, candidate_of(tmp_path, 0.5, math.nan, math.nan))
    assert often.decision == "not better"


def test_only_runs_up_to_the_limit_are_used(tmp_path: Path, baseline: Path) -> None:
    first = decide_from_files(
        baseline, candidate_of(tmp_path, 1.0, 1.01), limits=Limits(max_runs=2)
    )
    more = decide_from_files(
        baseline, candidate_of(tmp_path, 1.0, 1.01, 0.1, 0.1), limits=Limits(max_runs=2)
    )
    assert more.to_json() == first.to_json()
    assert "Only the first 2 are used" in more.notes[0]


def test_the_text_has_one_next_step_if_no_spread_is_known(tmp_path: Path) -> None:
    baseline = write(tmp_path / "one.csv", {"1": 1.0})
    headline, effect, basis = decide_from_files(baseline, candidate_of(tmp_path, 0.5)).describe()
    assert headline == "more: no decision yet. Repeat the baseline, or add a floor."
    assert effect == "Improvement: 0.5. One run does not show how much such runs differ."
    assert basis == (
        "Based on 1 run of the baseline and 1 run of the candidate, without a noise floor."
    )


def test_the_text_gives_no_bounds_where_there_are_none(tmp_path: Path) -> None:
    equal = write(tmp_path / "equal.csv", {"1": 1.0, "2": 1.0})
    answer = decide_from_files(equal, candidate_of(tmp_path, 1.0, 1.0))
    assert answer.describe()[1] == (
        "Improvement: 0. All runs of a side have the same result, so their spread is unknown."
    )
    bounds = {(-math.inf, math.inf): "no bounds", (-math.inf, 2.0): ", at most 2 with"}
    for (low, high), words in bounds.items():
        text = replace(answer, effect=1.0, low=low, high=high).describe()[1]
        assert words in text
        assert "inf" not in text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("run,step,value\n1,1,2\n1,x,2\n", "line 3, column step: 'x' is not valid"),
        ("run,step,value\n1,1.5,2\n", "line 2, column step: '1.5' is not valid"),
        ("run,step,value\n1,-1,2\n", "line 2, column step: '-1' is not valid"),
        ("run,step,value\n1,1,\n", "line 2, column value: '' is not valid"),
        ("run,step,value\n,1,2\n", "line 2, column run: '' is not valid"),
        ("run,step,value\n1,1,2\n1,1,3\n", "line 3, column step: run 1 has step 1 twice"),
        ("run,step\n1,1\n", "has no column value"),
        ("run,value\n1,1\n", "has no column step"),
        ("run,step,value,val_loss\n1,1,2,3\n", "has both columns value and val_loss"),
        ("run,step,value\n", "contains no runs"),
        ("run;step;value\n1;1;2\n", "separated"),
    ],
)
def test_errors_say_where_the_file_is_wrong(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(text)
    with pytest.raises(DataError) as error:
        read_curves(path)
    assert problem in str(error.value)


def test_an_unknown_goal_is_an_error(tmp_path: Path, baseline: Path) -> None:
    with pytest.raises(ArgumentError, match="goal: 'smaller' is not valid"):
        decide_from_files(baseline, baseline, goal="smaller")  # type: ignore[arg-type]


def test_the_text_says_the_decision_first(tmp_path: Path, baseline: Path, floor: Path) -> None:
    candidate = candidate_of(tmp_path, 0.9, 0.91, 0.89)
    headline, effect, basis = decide_from_files(baseline, candidate, floor).describe()
    assert headline == "better: accept the candidate."
    assert effect.startswith("Improvement: 0.1, between ")
    assert "with 95% confidence at every look" in effect
    assert basis.startswith(
        "Based on 4 runs of the baseline and 3 runs of the candidate, and on a noise floor of"
        " 12 groups with 96 runs."
    )


def test_a_session_divides_its_error_among_its_proposals(tmp_path: Path, baseline: Path) -> None:
    limits = Limits(error=0.06, session="night", store=str(tmp_path / "store.sqlite"))
    candidate = candidate_of(tmp_path, 0.98)
    first = decide_from_files(baseline, candidate, limits=limits)
    assert first.error == pytest.approx(0.03)
    assert first.notes[0] == "proposal 1 of the session night may spend 0.03 of its error 0.06"
    grown = candidate_of(tmp_path, 0.98, 0.99)
    assert decide_from_files(baseline, grown, limits=limits).error == pytest.approx(0.03)
    other = candidate_of(tmp_path, 0.97)
    second = decide_from_files(baseline, other, limits=limits)
    assert second.error == pytest.approx(0.01)


def test_a_proposal_is_new_after_the_baseline_has_changed(tmp_path: Path, baseline: Path) -> None:
    limits = Limits(session="night", store=str(tmp_path / "store.sqlite"))
    candidate = candidate_of(tmp_path, 0.98)
    decide_from_files(baseline, candidate, limits=limits)
    write(baseline, {"1": 0.9, "2": 0.91})
    assert "proposal 2" in decide_from_files(baseline, candidate, limits=limits).notes[0]


def test_a_session_keeps_its_settings(tmp_path: Path, baseline: Path) -> None:
    store = str(tmp_path / "store.sqlite")
    candidate = candidate_of(tmp_path, 0.98)
    decide_from_files(baseline, candidate, limits=Limits(session="night", store=store))
    larger = Limits(error=0.2, session="night", store=store)
    with pytest.raises(ArgumentError, match=r"error: the session night started with 0\.05"):
        decide_from_files(baseline, candidate, limits=larger)
    longer = Limits(max_runs=9, session="night", store=store)
    with pytest.raises(ArgumentError, match="max_runs: the session night started with 6"):
        decide_from_files(baseline, candidate, limits=longer)


@pytest.mark.parametrize("seed", range(3))
def test_a_session_of_many_edits_accepts_the_gains_only(tmp_path: Path, seed: int) -> None:
    """Ten edits change nothing and ten gain five standard deviations, in any order."""
    random = np.random.default_rng(seed)
    limits = Limits(session="edits", store=str(tmp_path / "store.sqlite"))
    baseline = write(tmp_path / "b.csv", numbered(random.normal(1, 0.01, 4)))
    wrong = 0
    for place, has_gain in enumerate(random.permutation([False] * 10 + [True] * 10), 1):
        values = random.normal(0.95 if has_gain else 1, 0.01, 6)
        decision, num = "more", 0
        while decision == "more":
            num += 1
            candidate = write(tmp_path / "c.csv", numbered(values[:num]))
            answer = decide_from_files(baseline, candidate, limits=limits)
            assert f"proposal {place} of" in answer.notes[0]
            decision = answer.decision
        wrong += (decision == "better") != has_gain
    assert wrong <= 1


def test_the_floor_of_a_session_holds_each_proposal_once(tmp_path: Path, baseline: Path) -> None:
    limits = Limits(session="night", store=str(tmp_path / "store.sqlite"))
    first = decide_from_files(baseline, candidate_of(tmp_path, 0.98, 0.99), limits=limits)
    assert first.floor is None
    second = decide_from_files(baseline, candidate_of(tmp_path, 0.97, 0.96), limits=limits)
    assert second.floor is not None
    assert (second.floor.num_groups, second.floor.num_trainings) == (1, 2)
    write(baseline, {"1": 0.97, "2": 0.96, "3": 0.95})  # the second one was accepted
    third = decide_from_files(baseline, candidate_of(tmp_path, 0.9), limits=limits)
    assert third.floor is not None
    assert third.floor.num_trainings == 2


def numbered(values: np.ndarray) -> dict[str, float]:
    return {str(number): float(value) for number, value in enumerate(values)}


def test_a_baseline_without_a_result_is_named(tmp_path: Path) -> None:
    baseline = write(tmp_path / "short.csv", BASELINE, steps=50)
    answer = decide_from_files(baseline, candidate_of(tmp_path, 0.9, 0.91))
    assert answer.decision == "more"
    assert answer.describe()[0].endswith("The baseline has no result, so train it first.")


@pytest.mark.parametrize(
    ("values", "is_noted"),
    [((0.9, 1.4, 0.5, 1.6), True), ((0.99, 1.01, 1.0, 0.98), False), ((0.9,), False)],
)
def test_unlike_spreads_are_noted(
    tmp_path: Path, baseline: Path, values: tuple[float, ...], is_noted: bool
) -> None:
    answer = decide_from_files(baseline, candidate_of(tmp_path, *values))
    assert any("differ much more from each other" in note for note in answer.notes) == is_noted


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("run,step,value\ngröße,1,0.5\n".encode("latin-1"), "is not UTF-8: it seems to be Latin-1"),
        ("run,step,value\na,1,0.5\n".encode("utf-16"), "is not UTF-8: it seems to be UTF-16"),
        (b"run,step,value\na,1,0.9_1\n", "line 2, column value: '0.9_1' is not valid"),
        (b"run,step,value\na,1_0,0.9\n", "line 2, column step: '1_0' is not valid"),
    ],
)
def test_a_file_with_another_encoding_or_a_slip_of_the_pen_is_refused(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "candidate.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_curves(path)


@pytest.mark.parametrize("exponent", [-300, -160, 0, 160, 300])
def test_the_unit_of_a_metric_changes_no_decision(tmp_path: Path, exponent: int) -> None:
    unit = float(f"1e{exponent}")
    baseline = write_results(tmp_path / "b.csv", [3.01, 3.0, 2.99, 3.0], unit)
    candidate = write_results(tmp_path / "c.csv", [2.95, 2.96, 2.94], unit)
    floor = tmp_path / "floor.csv"
    rows = [
        f"{group},{run},{10},{(3 + 0.01 * ((run * 7 + group) % 5)) * unit!r}"
        for group in range(3)
        for run in range(4)
    ]
    floor.write_text("\n".join(["group,run,step,value", *rows]))
    for repeated in (None, floor):
        answer = decide_from_files(baseline, candidate, repeated)
        plain = decide_from_files(
            write_results(tmp_path / "b1.csv", [3.01, 3.0, 2.99, 3.0], 1.0),
            write_results(tmp_path / "c1.csv", [2.95, 2.96, 2.94], 1.0),
        )
        assert answer.decision == "better"
        assert answer.effect == pytest.approx(0.05 * unit)
        assert answer.low is not None
        assert answer.low > 0
        if repeated is None:
            assert plain.low is not None
            assert answer.low == pytest.approx(plain.low * unit)
            assert answer.probability == pytest.approx(plain.probability)
        else:
            assert answer.floor is not None
            assert 0.003 * unit < answer.floor.deviation < 0.05 * unit


def write_results(path: Path, values: list[float], unit: float) -> Path:
    """Write results in another unit, as exactly as numbers can be written."""
    rows = [f"{run},10,{value * unit!r}" for run, value in enumerate(values)]
    path.write_text("\n".join(["run,step,value", *rows]))
    return path


@pytest.mark.parametrize("value", [0.0, 1.0, -1e300, 5e-324])
def test_equal_results_are_never_better(tmp_path: Path, value: float) -> None:
    baseline = write_results(tmp_path / "b.csv", [value] * 4, 1.0)
    for num in (1, 2, 6):
        answer = decide_from_files(baseline, write_results(tmp_path / "c.csv", [value] * num, 1.0))
        assert answer.decision == ("not better" if num == 6 else "more")
        assert answer.effect == 0


def results_of(path: Path, *values: float) -> Path:
    """Write runs of one step."""
    path.write_text("run,step,value\n" + "".join(f"{n},1,{v!r}\n" for n, v in enumerate(values)))
    return path


@pytest.mark.parametrize(
    ("deviation", "decision"), [(1e-300, "better"), (1e-8, "better"), (1e300, "not better")]
)
def test_a_floor_may_have_another_scale_than_the_results(
    tmp_path: Path, deviation: float, decision: str
) -> None:
    baseline = results_of(tmp_path / "b.csv", 3.0, 3.1, 3.05, 3.02)
    candidate = results_of(tmp_path / "c.csv", 2.0, 2.1, 2.05)
    floor = tmp_path / "floor.csv"
    rows = [f"{group},{run},1,{run * deviation!r}" for group in range(6) for run in range(3)]
    floor.write_text("\n".join(["group,run,step,value", *rows]))
    answer = decide_from_files(baseline, candidate, floor)
    assert answer.decision == decision
    # (3 + 3.1 + 3.05 + 3.02) / 4 - (2 + 2.1 + 2.05) / 3 = 3.0425 - 2.05
    assert answer.effect == pytest.approx(0.9925, rel=1e-12)
    assert answer.low is not None
    assert answer.high is not None
    assert answer.low <= 0.9925 <= answer.high
    assert answer.floor is not None
    assert answer.floor.deviation == pytest.approx(deviation, rel=0.5)


def test_results_at_the_ends_of_the_numbers_give_no_warning(tmp_path: Path) -> None:
    largest = 1.7976931348623157e308
    baseline = results_of(tmp_path / "b.csv", largest, -largest, 5e-324, 1.0)
    candidate = results_of(tmp_path / "c.csv", -largest, 1e-320, 3.0)
    floor = tmp_path / "floor.csv"
    floor.write_text(
        f"group,run,step,value\na,1,1,{largest!r}\na,2,1,{-largest!r}\nb,1,1,0\nb,2,1,5e-324\n"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answer = decide_from_files(baseline, candidate, floor)
    # The means are 0 and -largest / 3.
    assert answer.effect == pytest.approx(largest / 3)
    assert answer.low is not None
    assert answer.high is not None
    assert answer.low < largest / 3 < answer.high


def test_a_candidate_that_ends_well_is_better_than_a_baseline_that_never_does(
    tmp_path: Path,
) -> None:
    baseline = results_of(tmp_path / "b.csv", *[math.nan] * 4)
    one = decide_from_files(baseline, results_of(tmp_path / "one.csv", 3.0))
    assert (one.decision, one.more_runs, one.effect) == ("more", 1, None)
    two = decide_from_files(baseline, results_of(tmp_path / "two.csv", 3.0, 3.1))
    assert (two.decision, two.more_runs) == ("better", 0)
    # The largest of 5 uniform numbers is below the smallest of 3 in one of 56 orders.
    assert two.probability == pytest.approx(1 - 1 / 56)
    assert two.num_baseline == 4


def test_a_candidate_that_also_diverges_needs_more_runs_or_is_not_better(tmp_path: Path) -> None:
    baseline = results_of(tmp_path / "b.csv", *[math.nan] * 4)
    few = decide_from_files(baseline, results_of(tmp_path / "few.csv", math.nan, 3.1))
    assert (few.decision, few.more_runs) == ("more", 3)
    enough = decide_from_files(
        baseline, results_of(tmp_path / "enough.csv", math.nan, 3.1, 3.0, 3.2, 3.1)
    )
    assert enough.decision == "better"
    never = decide_from_files(baseline, results_of(tmp_path / "never.csv", *[math.inf] * 3))
    assert (never.decision, never.more_runs) == ("not better", 0)


def test_one_diverged_run_of_the_baseline_shows_too_little(tmp_path: Path) -> None:
    baseline = results_of(tmp_path / "b.csv", math.nan)
    answer = decide_from_files(baseline, results_of(tmp_path / "c.csv", *[3.0] * 6))
    assert answer.decision == "more"
    assert "The baseline diverged once, so train it again" in answer.describe()[0]


@pytest.mark.parametrize("num_baseline", [2, 3, 4, 8])
def test_equal_shares_of_failures_are_rarely_called_better(
    tmp_path: Path, num_baseline: int
) -> None:
    """The probability is computed exactly, over all courses of six candidate runs."""
    baseline = results_of(tmp_path / "b.csv", *[math.nan] * num_baseline)
    claims: dict[tuple[bool, ...], bool] = {}

    def is_claimed(fails: tuple[bool, ...]) -> bool:
        """Return whether a look at these runs, or an earlier one, claims a gain."""
        if not fails:
            return False
        if fails not in claims:
            values = [math.nan if failed else 3.0 for failed in fails]
            answer = decide_from_files(baseline, results_of(tmp_path / "c.csv", *values))
            claims[fails] = is_claimed(fails[:-1]) or answer.decision == "better"
        return claims[fails]

    courses = [fails for fails in itertools.product((False, True), repeat=6) if is_claimed(fails)]
    assert courses
    worst = max(
        share**num_baseline
        * math.fsum(share ** sum(fails) * (1 - share) ** (6 - sum(fails)) for fails in courses)
        for share in (step / 200 for step in range(201))
    )
    assert worst <= 0.05


def test_an_empty_file_is_said_to_be_empty(tmp_path: Path, baseline: Path) -> None:
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    with pytest.raises(DataError, match=r"empty\.csv is empty") as raised:
        decide_from_files(baseline, empty)
    assert "run, step, value" in str(raised.value)
