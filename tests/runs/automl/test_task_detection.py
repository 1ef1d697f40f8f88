from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from workbench.foundation.errors import ArgumentError, DataError
from workbench.runs.automl.task_detection import as_samples, read_labelled, read_problem

RNG = np.random.default_rng(0)


def frame(num_rows: int = 40) -> pd.DataFrame:
    return pd.DataFrame({"x": RNG.normal(size=num_rows), "y": np.arange(num_rows) % 2})


@pytest.mark.parametrize(
    ("data", "target", "kind", "task"),
    [
        (frame(), "y", "table", "classification"),
        (frame(), "x", "table", "regression"),
        ((RNG.normal(size=(40, 3)), RNG.normal(size=40)), None, "table", "regression"),
        ((RNG.normal(size=(40, 3)).tolist(), ["a", "b"] * 20), None, "table", "classification"),
        ((RNG.normal(size=(40, 8, 8)), np.arange(40) % 4), None, "images", "classification"),
        ((RNG.normal(size=(40, 8, 8, 3)), RNG.normal(size=40)), None, "images", "regression"),
        (
            ([f"some words {i}" for i in range(40)], np.arange(40) % 2),
            None,
            "texts",
            "classification",
        ),
        (
            pd.DataFrame({"review": [f"it was good {i}" for i in range(40)], "stars": [1, 5] * 20}),
            "stars",
            "texts",
            "classification",
        ),
        ("digits", None, "images", "classification"),
        ("breast_cancer", None, "table", "classification"),
    ],
)
def test_what_data_asks_is_found_out(data, target, kind, task):
    problem = read_problem(data, target)
    assert (problem.kind, problem.task) == (kind, task)
    assert len(problem.samples) == len(problem.targets)


def test_a_file_is_read_and_its_labels_come_back_as_they_were(tmp_path):
    path = tmp_path / "flowers.csv"
    frame().assign(y=["rose", "tulip"] * 20).to_csv(path, index=False)
    problem = read_problem(path, "y")
    assert problem.labels == ("rose", "tulip")
    assert (problem.target_name, len(problem)) == ("y", 40)
    assert read_problem((np.ones((40, 1)), np.array([3, 10] * 20))).labels == (3, 10)


@pytest.mark.parametrize(
    ("data", "target", "error", "part"),
    [
        (frame(), None, ArgumentError, "needs the name of the column to predict"),
        (frame(), "z", DataError, "no column 'z'; allowed: x, y"),
        (frame(3), "y", DataError, "3 samples with a target are too few"),
        (frame().assign(y="same"), "y", DataError, "target: the target 'y' is 'same' in every"),
        (
            frame().assign(y=0.5),
            "y",
            DataError,
            "'y' is 0.5 in every sample; allowed: .*Add samples",
        ),
        (frame().assign(y=np.nan), "y", DataError, r"0 samples with a target .*\(40 have none\)"),
        (
            frame().assign(y=["yes", "yes", None, np.nan] * 10),
            "y",
            DataError,
            r"'yes' in every sample that has one; .*20 samples have none\. .*y\.fillna",
        ),
        (
            frame().assign(y=[1.0, np.inf, -np.inf, 0.0] * 10),
            "y",
            DataError,
            r"target: the target 'y' is infinite in 20 of 40 samples: 1, 2, 5, 6, 9, \.\.\. \(from",
        ),
        (
            (np.ones((30, 1)), pd.Series([None, 1.5, np.inf] * 10, dtype=object)),
            None,
            DataError,
            "10 of 30",
        ),
        (
            frame().assign(y=pd.date_range("2026-01-01", periods=40)),
            "y",
            DataError,
            r"'y' holds dates or times, such as 2026-01-01 00:00:00; allowed: .*\.dt\.days",
        ),
        (
            frame().assign(y=pd.date_range("2026-01-01", periods=40).date),
            "y",
            DataError,
            "holds dates",
        ),
        (frame().assign(y=pd.to_timedelta(range(40), unit="h")), "y", DataError, "holds dates"),
        (
            frame().assign(y=[f"2026-01-{day % 28:02}" for day in range(1, 41)]),
            "y",
            DataError,
            "fewer than two of 28 classes .*quantity or a date",
        ),
        (frame().assign(x=np.nan), "y", DataError, "every value of every column is missing"),
        (
            frame().assign(x=np.inf),
            "y",
            DataError,
            "every value of every column is missing",
        ),
        (frame()[["y"]], "y", DataError, "no column is left"),
        ((np.ones((40, 2)), np.ones(39)), None, DataError, "40 samples and 39 targets"),
        ((np.ones((40, 2, 2, 2, 2)), np.arange(40) % 2), None, DataError, "not supported"),
        ("missing.csv", "y", DataError, "^data: .*does not exist"),
        (7, None, ArgumentError, "data of type int"),
    ],
)
def test_what_cannot_be_learnt_from_is_refused_in_words(data, target, error, part):
    with pytest.raises(error, match=part):
        read_problem(data, target)


@pytest.mark.parametrize("write", ["CHF {:,}", "{} CHF", "{:.1f} kg"])
def test_a_target_of_numbers_with_a_unit_is_a_number_and_noted(write):
    problem = read_problem(
        frame().assign(y=[write.format(2 * row + 990) for row in range(40)]), "y"
    )
    assert problem.task == "regression"
    assert problem.targets.tolist() == [2.0 * row + 990 for row in range(40)]
    assert any(note.startswith("read as numbers without their unit: y") for note in problem.notes)


def test_samples_of_rare_classes_are_not_left_out_in_bulk():
    codes = [f"code {row}" for row in range(30)] + ["a", "a", "a", "b", "b", "b"] + ["c"] * 4
    with pytest.raises(
        DataError, match=r"^target: 30 of 40 samples are of 30 classes .* plain numbers"
    ):
        read_problem(frame().assign(y=codes), "y")


def test_targets_that_are_missing_rare_or_uneven_are_told():
    labels = ["often"] * 50 + ["seldom"] * 6 + ["once"] + [None] * 3
    problem = read_problem((RNG.normal(size=(60, 2)), pd.Series(labels)))
    assert problem.class_names == ("often", "seldom")
    assert len(problem) == 56
    told = " / ".join(problem.notes)
    for part in (
        "3 samples without a target",
        "left out 1 sample of 1 class with fewer than 3 samples: once",
        "imbalanced",
    ):
        assert part in told


def test_rows_without_a_target_and_rows_of_weight_0_are_told_apart():
    weights = [0] * 5 + [1] * 35
    table = frame().assign(y=[None, None, *["no", "yes"] * 19], w=weights)
    notes = read_problem(table, "y", weight_column="w").notes
    assert [note for note in notes if "not used" in note] == [
        "2 samples without a target are not used",
        "3 samples of weight 0 are not used",
    ]
    few = table.assign(w=[0] * 30 + [1] * 10)
    with pytest.raises(DataError, match=r"\(2 have none, 28 have weight 0\)"):
        read_problem(few, "y", weight_column="w")
    same = table.assign(y="no")
    with pytest.raises(DataError, match=r"y.* is 'no' in every sample; allowed"):
        read_problem(same, "y", weight_column="w")


def test_classes_of_whole_numbers_stay_whole_beside_missing_targets(tmp_path):
    table = frame().assign(y=[None, *[0, 1, 2] * 13])
    assert table["y"].dtype == "float64"
    table.to_csv(tmp_path / "table.csv", index=False)
    for data in (table, tmp_path / "table.csv"):
        problem = read_problem(data, "y")
        assert problem.class_names == ("0", "1", "2")
        assert [repr(label) for label in problem.labels] == ["0", "1", "2"]
    # Without the row that has none, the column may still be of floating-point numbers.
    samples = table.iloc[1:]
    assert read_labelled(samples, "y", problem.labels)[1].tolist() == [0, 1, 2] * 13
    assert (
        read_labelled(samples.astype({"y": int}), "y", (0.0, 1.0, 2.0))[1].tolist()
        == [0, 1, 2] * 13
    )


def test_dates_are_classes_and_no_number_only_where_that_is_said():
    days = frame().assign(y=pd.to_datetime(["2026-01-01", "2026-02-01"] * 20))
    assert read_problem(days, "y", task="classification").class_names == (
        "2026-01-01",
        "2026-02-01",
    )
    with pytest.raises(DataError, match="holds dates"):
        read_problem(days, "y", task="regression")
    with pytest.raises(
        DataError, match=r"values that are not numbers: .*allowed: numbers .*set task to"
    ):
        read_problem(frame().assign(y=["a", "b"] * 20), "y", task="regression")


def test_new_samples_may_all_have_one_target_but_there_must_be_some():
    assert read_labelled((np.ones((2, 2)), [5.0, 5.0]), None, ())[1].tolist() == [5.0, 5.0]
    with pytest.raises(DataError, match="there are no samples"):
        read_labelled((np.ones((0, 2)), []), None, ())


def test_samples_of_another_kind_are_refused_later():
    with pytest.raises(DataError, match="images were given to a model that was trained on table"):
        as_samples("table", np.ones((2, 4, 4)))
    with pytest.raises(DataError, match="'c' is not a class"):
        read_labelled((np.ones((1, 2)), ["c"]), None, ("a", "b"))


def test_columns_are_left_out_on_request():
    table = frame().assign(paid=range(40), note=["some words here"] * 40)
    problem = read_problem(table, "y", drop=["paid", "note"])
    assert list(problem.samples.columns) == [name for name in frame().columns if name != "y"]
    pair = read_problem((table.drop(columns="y"), table["y"]), drop=["paid", "note"])
    assert list(pair.samples.columns) == list(problem.samples.columns)


@pytest.mark.parametrize(
    ("data", "drop", "part"),
    [
        (
            frame().assign(paid=1),
            ["payed"],
            r"^drop: there is no column 'payed'.*Did you mean paid\?",
        ),
        (frame(), ["y"], "^drop: 'y' is the column to predict"),
        (frame(), [name for name in frame().columns if name != "y"], "^drop: no column is left"),
    ],
)
def test_columns_that_cannot_be_left_out_are_refused(data, drop, part):
    with pytest.raises((DataError, ArgumentError), match=part):
        read_problem(data, "y", drop=drop)


def test_only_tables_have_columns_to_leave_out():
    with pytest.raises(ArgumentError, match=r"^drop: images have no columns"):
        read_problem((RNG.random((40, 4, 4)), np.arange(40) % 2), drop=["x0"])


def test_a_column_that_holds_the_answer_is_noted_with_what_leaves_it_out():
    table = frame().assign(y=["no", "yes"] * 20, **{"paid back": [0, 1] * 20})
    (note,) = (note for note in read_problem(table, "y").notes if "alone predicts" in note)
    assert note.startswith("`paid back` alone predicts `y` with accuracy 1.00")
    assert note.endswith("leave it out with --drop 'paid back', or drop=['paid back'] in Python")
    assert not any("alone" in note for note in read_problem(table, "y", drop=["paid back"]).notes)


def test_masked_values_are_missing_and_not_what_is_under_the_mask():
    inputs = np.ma.masked_less(np.arange(120.0).reshape(40, 3) % 7, 2)
    targets = np.ma.masked_equal(np.arange(40) % 5, 3)
    problem = read_problem((inputs, targets), task="regression")
    kept = ~targets.mask
    assert "8 samples without a target are not used" in problem.notes
    assert problem.targets.tolist() == targets.data[kept].tolist()
    expected = np.where(inputs.mask, np.nan, inputs.data)[kept]
    np.testing.assert_array_equal(problem.samples.to_numpy(float), expected)


def test_copies_of_rows_are_noted_unless_rows_have_few_possible_values():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"x": rng.normal(size=50), "town": rng.choice(["a", "b"], 50), "y": rng.normal(size=50)}
    )
    (note,) = [
        note
        for note in read_problem(pd.concat([frame, frame[:10]]), "y").notes
        if "rows of" in note
    ]
    assert note == (
        "10 rows of 60 have the same inputs as another: such rows are kept on one side of every"
        " split"
    )
    coins = pd.DataFrame(
        {
            "coin": rng.choice([0, 1], 60),
            "town": rng.choice(["a", "b"], 60),
            "y": rng.choice([0, 1], 60),
        }
    )
    for unique in (frame, coins):
        assert not [note for note in read_problem(unique, "y").notes if "rows of" in note]


@pytest.mark.parametrize("shape", [(40, 2), (20, 2)])
def test_several_targets_of_a_sample_are_refused_by_their_shape(shape):
    with pytest.raises(DataError, match=rf"the targets are of shape \({shape[0]}, 2\).*argmax"):
        read_problem((np.random.default_rng(0).normal(size=(40, 3)), np.zeros(shape)))


def test_a_column_that_is_named_by_a_number_is_a_target():
    frame = pd.DataFrame({0: np.arange(40.0) % 9, 1: np.arange(40.0)})
    assert read_problem(frame, 1).target_name == "1"


def test_tensors_and_sparse_arrays_are_read_or_refused_by_their_type():
    torch = pytest.importorskip("torch")
    sparse = pytest.importorskip("scipy.sparse")
    targets = torch.arange(40.0, requires_grad=True)
    assert read_problem((torch.randn(40, 2, requires_grad=True), targets)).targets.tolist() == list(
        range(40)
    )
    with pytest.raises(DataError, match=r"type csr_array are sparse.*X.toarray"):
        read_problem((sparse.csr_array(np.eye(40)), np.arange(40.0)))
