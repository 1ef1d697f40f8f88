"""The result of an AutoML run in a few lines, as a leaderboard and as a model card.

All are made from what was computed now or stored at the end of the run. Choosing and testing is
left to `result`. The card is Markdown for people. It says what a model is, how well it was tested,
and what nobody has tested. What only you know is left for you to write.

Source: Mitchell et al., Model Cards for Model Reporting (2019), for the card.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.experiment.actions import suggest
from workbench.experiment.metric_declarations import declaration_of
from workbench.foundation.errors import Suggestion
from workbench.foundation.formatting import format_duration, format_number, format_percent
from workbench.runs.automl.candidate_results import (
    candidates_of,
    describe_counts,
    describe_cut_short,
)
from workbench.runs.automl.held_out_analysis import describe_analysis
from workbench.runs.automl.score_intervals import FEW_SAMPLES
from workbench.runs.automl.scores import is_better
from workbench.store.history import History
from workbench.store.history.certainty import describe_rate

if TYPE_CHECKING:
    import pandas as pd
from workbench.runs.automl.error_slices import describe_slice

SIMPLEST = {"classification": "most frequent class", "regression": "mean of the target"}
_PERFECT = 0.9999
# By chance, intervals are this many standard deviations off in one of a thousand results.
_NUM_DEVIATIONS = 3.0
_TO_WRITE = "*To be written by you.*"


def summary_lines(
    result: Mapping[str, Any],
    history: History,
    write: Callable[[Suggestion], str] = str,
    *,
    has_notes: bool = True,
) -> list[str]:
    """Return the model, its test scores, the scores of the simplest guess, and notes.

    Args:
        result: The result, as `wb.AutoML.to_json` returns it. Its own summary is not read.
        history: The run.
        write: Writes a next step that is a command. The default writes Python.
        has_notes: Whether the notes about the data follow, which may have been shown before.
    """
    task = result["task"]
    num_samples = result["num_samples"]
    metric, value = next((name, float(score)) for name, score in result["test"].items())
    guess = float(result["baseline"][metric])
    is_at_once = bool(result["used"]) and _is_at_once(result["used"][0])
    cut_short = None if is_at_once else describe_cut_short(history)
    how = _described_validation(
        result, history.experiment.repeats, is_at_once=is_at_once, is_explained=bool(cut_short)
    )
    optimised = ""
    if result.get("metric"):
        optimised = f", optimised for {result['metric']}"
    counts = "" if is_at_once else f"; {describe_counts(candidates_of(history))}"
    num_tested = num_samples["test"]
    sureness = _sureness(result, metric, value)
    lines = [
        f"{result['model']}: {metric} {value:.4g} on {num_tested} held-out test samples{sureness}",
        (
            f"simplest guess, the {SIMPLEST[task]}: {metric} {guess:.4g}"
            f"{compared_with_guess(result, metric)}"
        ),
        *_worse_probabilities(result, metric),
        *_limits_of_interval(result, metric),
        f"learned from {num_samples['learning']} samples, {how}{optimised}{counts}",
    ]
    if not result["used"]:
        lines[0] = "no model was ready in time, so the simplest guess is used. "
        run_id = str(result["run_id"])
        lines[0] += write(suggest("extend", run_id, lead="To give the run more time", time="1m"))
    elif is_at_once:
        run_id = str(result["run_id"])
        more_time = write(suggest("extend", run_id, lead="To give the run more time", time="1m"))
        family = result["used"][0]["family"]
        lines.append(
            f"no trial was ready in time, so a {family} model was fitted at once. {more_time}"
        )
        lines += [*_described_refit(result), *describe_analysis(result["analysis"])]
    else:
        lines += _described_refit(result)
        if cut_short is not None:
            lines.append(cut_short)
        lines += _described_latency(result)
        if decided := (result.get("decisions") or {}).get("text"):
            lines.append(decided)
        lines += _described_intervals(result)
        if below := result.get("quantiles"):
            parts = [f"{format_percent(share)} ({level})" for level, share in below.items()]
            lines.append(f"test samples below their quantiles: {', '.join(parts)}")
        lines += describe_analysis(result["analysis"])
        lines += _notes_of_perfection(result)
    return [*lines, *(f"note: {note}" for note in result["notes"] if has_notes)]


def _described_refit(result: Mapping[str, Any]) -> list[str]:
    """Return to which rows models were fitted again, if they were."""
    if not result.get("refit"):
        return []
    rows = "all rows"
    if _has_own_test(result):
        rows = "all rows but yours to test on"
    return [f"after the test, models were fitted again to {rows}. The scores are from before that"]


def _described_latency(result: Mapping[str, Any]) -> list[str]:
    """Return how long the prediction of one row takes, if the user limited it."""
    latency = result.get("latency") or {}
    limit_s = latency.get("limit_s")
    if limit_s is None:
        return []
    taken, limit = format_duration(latency["row_s"]), format_duration(limit_s)
    if latency["row_s"] <= limit_s:
        return [f"one row is predicted in {taken}, within the limit of {limit}"]
    return [f"one row is predicted in {taken}: no model is within the limit of {limit}"]


def _described_intervals(result: Mapping[str, Any]) -> list[str]:
    """Return how often the intervals of predictions are right, and whether that is too seldom."""
    intervals = result.get("prediction_interval")
    if intervals is None:
        return []
    level, held = intervals["level"], intervals["held"]
    text = (
        f"intervals of {level:.0%} hold {held:.0%} of the test samples, and half of them are"
        f" narrower than {format_number(intervals['median_width'])}"
    )
    chance = (level * (1 - level) / result["num_samples"]["test"]) ** 0.5
    if held < level - _NUM_DEVIATIONS * chance:
        text += ". That is far too few: the test samples differ from those to learn from"
        if (result.get("split") or {}).get("time"):
            text += ", such as by a trend that the model does not continue"
    return [text]


def _described_split(split: Mapping[str, Any]) -> str:
    """Return the columns that decided which samples were held out, to be appended."""
    parts = []
    if (group := split.get("group")) is not None:
        parts.append(f"by `{group}`")
    if (time := split.get("time")) is not None:
        parts.append(f"in the order of `{time}`")
    return f", split {' and '.join(parts)}" if parts else ""


def _is_at_once(used: Mapping[str, Any]) -> bool:
    """Return whether a model was fitted without a trial, because none was ready in time."""
    return used["trial"] is None and not used.get("is_taught")


def _described_validation(
    result: Mapping[str, Any], num_folds: int, *, is_at_once: bool, is_explained: bool
) -> str:
    """Return which samples the model was chosen by.

    Args:
        result: As in `summary_lines`.
        num_folds: Into how many folds the samples were divided.
        is_at_once: Whether the model was fitted without a trial.
        is_explained: Whether another line says why only some folds were compared.
    """
    split = result.get("split") or {}
    how = "a fifth of which were kept apart to choose the model"
    if num_folds > 1:
        how = f"compared by cross-validation in {num_folds} folds"
        num_learnt = max(
            (used.get("num_folds", num_folds) for used in result["used"]), default=num_folds
        )
        if num_learnt < num_folds:  # time was over before a candidate had learnt from all
            how = f"compared on {num_learnt} of {num_folds} folds"
            how += "" if is_explained else ", because time was over"
    if is_at_once:
        how = "some of which were kept apart to choose the model"
    if "validation" in split.get("own_parts", ()):
        how = "including your validation samples"
    return how + _described_split(split)


def compared_with_guess(result: Mapping[str, Any], metric: str) -> str:
    """Return that the model is, or may be, no better than the simplest guess, or nothing.

    A model of pure noise is better than the guess in half of all tests, so the intervals decide.

    Args:
        result: As in `summary_lines`.
        metric: The first score of the test.
    """
    if not _is_better_than_guess(result, metric):
        loss, guess = result["test"].get("log_loss"), result["baseline"].get("log_loss")
        if metric != "log_loss" and loss is not None and guess is not None and loss < guess:
            return (
                " - the predicted classes are no better than this guess, but the probabilities are:"
                f" log_loss {format_number(loss)} instead of {format_number(guess)}"
            )
        return " - the model is no better than this guess"
    intervals = result.get("intervals") or {}
    compared = [name for name in dict.fromkeys((metric, "log_loss")) if name in intervals]
    if not compared or not all(_may_be_guess(result, name) for name in compared):
        return ""
    return " - the model may be no better than this guess, which its interval does not exclude"


def _may_be_guess(result: Mapping[str, Any], metric: str) -> bool:
    """Return whether the interval of a score contains the score of the simplest guess."""
    guess, task = float(result["baseline"][metric]), result["task"]
    return not all(
        is_better(metric, task, float(end), guess) for end in result["intervals"][metric]
    )


def _is_better_than_guess(result: Mapping[str, Any], metric: str) -> bool:
    """Return whether the model is better than the simplest guess on the test samples.

    Weights of classes, or a chosen threshold, trade accuracy for something else. Then the
    probabilities decide.
    """
    factors = (result.get("decisions") or {}).get("factors")
    if metric == "accuracy" and factors and "log_loss" in result["test"]:
        metric = "log_loss"
    value, guess = float(result["test"][metric]), float(result["baseline"][metric])
    return is_better(metric, result["task"], value, guess)


def _worse_probabilities(result: Mapping[str, Any], metric: str) -> list[str]:
    """Return a line if the probabilities are no better than the simplest guess."""
    loss = result["test"].get("log_loss")
    if loss is None or metric == "log_loss":
        return []
    guess = float(result["baseline"]["log_loss"])
    if is_better("log_loss", result["task"], float(loss), guess):
        return []
    return [
        f"log_loss {loss:.4g} is no better than {guess:.4g} for the simplest guess: do not rely on"
        " the probabilities. The test samples may differ from those to learn from"
    ]


def _sureness(result: Mapping[str, Any], metric: str, value: float) -> str:
    """Return the interval of the main score and what it is rough by, to be appended."""
    num_samples = int(result["num_samples"]["test"])
    if "intervals" in result:
        return _described_interval(result, metric, num_samples)
    declaration = declaration_of(metric)
    if declaration is None or not declaration.is_rate or not num_samples:
        return ""
    return f", {describe_rate(value, num_samples)}"


def _limits_of_interval(result: Mapping[str, Any], metric: str) -> list[str]:
    """Return what the interval of a score does not promise."""
    time = (result.get("split") or {}).get("time")
    if time is None or metric not in (result.get("intervals") or {}):
        return []
    return [
        f"the interval is for later `{time}` that are like the tested ones: a trend or a change"
        " could make the score better or worse"
    ]


def _described_interval(result: Mapping[str, Any], metric: str, num_samples: int) -> str:
    split = result.get("split") or {}
    text = ""
    if (num_groups := split.get("num_test_groups")) is not None:
        text += f" ({num_groups} different `{split['group']}`)"
    ends = result["intervals"].get(metric)
    if ends is not None:
        text += f", between {ends[0]:.4g} and {ends[1]:.4g} with 90 % certainty"
    if num_samples < FEW_SAMPLES:
        text += ". With so few samples the score is rough"
    return text


def _notes_of_perfection(result: Mapping[str, Any]) -> list[str]:
    """Return a note if the test has no mistake: a column may contain the answer."""
    name = "r2"
    if result["task"] == "classification":
        name = "accuracy"
    if name not in result["test"]:
        return []
    columns = (result["analysis"].get("importance") or {}).get("columns") or []
    if float(result["test"][name]) < _PERFECT or not columns:
        return []
    needed = [column["column"] for column in columns if column["low"] > 0.0][:3] or [
        columns[0]["column"]
    ]
    return [
        f"the test has no mistake: make sure that {', '.join(needed)} would be known when a"
        " prediction is made. Drop columns that would not be with --drop"
    ]


def columns_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns of the leaderboard: validation scores come before test scores."""
    names = dict.fromkeys(name for row in rows for name in row)
    scores = [name for part in ("val_", "test_") for name in names if name.startswith(part)]
    return ["model", "trial", "weight", *scores, "fit_s", "predict_s", "row_s", "with"]


def table_of(leaderboard: Mapping[str, Any]) -> pd.DataFrame:
    """Return the table of a leaderboard.

    Args:
        leaderboard: Its `rows` and the order of its `columns`.
    """
    import pandas as pd

    table = pd.DataFrame(leaderboard["rows"])
    table["trial"] = table["trial"].astype("Int64")
    return table.reindex(columns=leaderboard["columns"])


def model_card(
    result: Mapping[str, Any], *, name: str, target: str | None, licences: Sequence[str] = ()
) -> str:
    """Return the card of the result of an AutoML run as Markdown.

    Args:
        result: The result, as `wb.AutoML.to_json` returns it.
        name: The name of the run.
        target: What is predicted, if it has a name.
        licences: Licences of weights that the model contains and others have trained.
    """
    licences = [*licences, *filter(_is_on_license, result.get("notes") or ())]
    sections = [
        (
            "Intended use",
            [
                f"{_TO_WRITE} Who uses the predictions, and what for? What must they not"
                " be used for?"
            ],
        ),
        ("Model", _model(result)),
        ("Data", _data(result, target)),
        ("Scores", _scores(result)),
        ("Where it is worst", _slices(result)),
        ("Which columns it needs", _columns(result)),
        ("Limits", _limits(result)),
        ("Licence", [*licences, _TO_WRITE]),
    ]
    lines = [f"# Model card: {name}", ""]
    for title, content in sections:
        if content:
            lines += [f"## {title}", "", *content, ""]
    return "\n".join(lines)


def _is_on_license(note: str) -> bool:
    """Return whether a note is about the license of foundation weights."""
    return "license" in note and "weights" in note


def _model(result: Mapping[str, Any]) -> list[str]:
    lines = [f"- Run: `{result['run_id']}`", f"- Task: {result['task']}"]
    lines.append(f"- Model: {result['model']}")
    lines += [f"  - {_member(used)}" for used in result["used"]]
    if result.get("metric"):
        lines.append(f"- Optimised for: {result['metric']}")
    if result["task"] == "classification":
        lines.append(f"- Calibration: {_calibration(result.get('decisions') or {})}")
    if text := (result.get("decisions") or {}).get("text"):
        lines.append(f"- Decision: {text}")
    if result.get("refit"):
        rows = "all rows, also to those of the test"
        if _has_own_test(result):
            rows = "all rows but those of the test, also to the validation rows"
        lines.append(f"- After the test, models were fitted again to {rows}")
    return lines


def _has_own_test(result: Mapping[str, Any]) -> bool:
    """Return whether the user gave the test rows, which are never learned from."""
    return "test" in ((result.get("split") or {}).get("own_parts") or ())


def _member(used: Mapping[str, Any]) -> str:
    if used["weight"] is None:
        return f"{used['family']}, in a second layer that decides whom to believe about each class"
    return f"{used['family']}, weight {used['weight']:.2f}"


def _calibration(decisions: Mapping[str, Any]) -> str:
    if decisions.get("curves"):
        return "isotonic regression on validation rows"
    temperature = float(decisions.get("temperature") or 1.0)
    if temperature != 1.0:
        return f"temperature {temperature:.3g}, learned on validation rows"
    return "none, because it did not help on validation rows"


def _data(result: Mapping[str, Any], target: str | None) -> list[str]:
    num = result["num_samples"]
    split = result.get("split") or {}
    how = "Test rows were drawn at random."
    if split.get("time"):
        how = f"The last rows by `{split['time']}` were tested."
    elif split.get("group"):
        how = f"Rows with the same `{split['group']}` are on one side of the split."
    if _has_own_test(result):
        how = "The test rows were given by the user."
    lines = [f"- Target: `{target}`"] if target else []
    return [
        *lines,
        f"- Rows to learn from: {num['learning']}",
        f"- Rows of the test, which chose nothing: {num['test']}",
        f"- {how}",
        *(f"- {note}" for note in result.get("notes") or () if not _is_on_license(note)),
        f"- Where the data comes from: {_TO_WRITE}",
    ]


def _scores(result: Mapping[str, Any]) -> list[str]:
    guess = SIMPLEST[result["task"]]
    lines = [f"| Score | Test | 90 % interval | {guess} |", "|---|---|---|---|"]
    intervals = result.get("intervals") or {}
    for metric, value in result["test"].items():
        ends = intervals.get(metric)
        between = f"{_number(ends[0])} to {_number(ends[1])}" if ends else ""
        other = _number(result["baseline"].get(metric))
        lines.append(f"| {metric} | {_number(value)} | {between} | {other} |")
    if held := result.get("prediction_interval"):
        shares = [format_percent(held[name]) for name in ("level", "held")]
        lines += ["", f"Intervals of {shares[0]} hold {shares[1]} of the test rows."]
    return lines


def _number(value: Any) -> str:
    return "" if value is None else format_number(float(value))


def _slices(result: Mapping[str, Any]) -> list[str]:
    analysis = result.get("analysis") or {}
    worst = [part for part in analysis.get("slices") or () if part["certain"]]
    is_classification = "confusion" in analysis
    unit = (analysis.get("errors") or {}).get("written_unit") or ""
    lines = [
        f"- {describe_slice(part, is_classification=is_classification, unit=unit)}"
        for part in worst[:10]
    ]
    return lines or ["No part of the test rows is worse than chance explains."]


def _columns(result: Mapping[str, Any]) -> list[str]:
    importance = (result.get("analysis") or {}).get("importance") or {}
    needed = [column for column in importance.get("columns") or () if column["low"] > 0.0][:10]
    if not needed:
        return []
    verb = f"{'Gain' if importance.get('is_error') else 'Loss'} of {importance['score']}"
    lines = [f"| Column | {verb} | 90 % interval |", "|---|---|---|"]
    for column in needed:
        low, high = _number(column["low"]), _number(column["high"])
        lines.append(f"| {column['column']} | {_number(column['mean'])} | {low} to {high} |")
    return lines


def _limits(result: Mapping[str, Any]) -> list[str]:
    lines = [
        "- Nobody has tested the model on rows far outside of what it has learned. `predict` warns"
        " about such rows.",
        "- The scores hold for rows like those of the test. Check them again with new rows.",
    ]
    if _has_own_test(result):
        lines.append("- Whether the test rows are later ones, only the user who gave them knows.")
    elif not (result.get("split") or {}).get("time"):
        lines.append("- The split does not follow time, so a change over time was not tested.")
    if result["num_samples"]["test"] < 200:
        lines.append("- The test has few rows, so the scores are rough.")
    return [*lines, f"- {_TO_WRITE}"]
