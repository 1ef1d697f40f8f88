"""A model card: what a model is, how well it was tested, and what nobody has tested.

It is Markdown for people, made from the stored result. What only you know is left for you to write.

Source: Mitchell et al., Model Cards for Model Reporting (2019).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workbench.foundation.formatting import format_number, format_percent
from workbench.runs.automl.error_slices import describe_slice
from workbench.runs.automl.result_summary import SIMPLEST

_TO_WRITE = "*To be written by you.*"


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
        lines.append("- After the test, trees were fitted to all rows, also to those of the test")
    return lines


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
    if "test" in (split.get("own_parts") or ()):
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
    if not (result.get("split") or {}).get("time"):
        lines.append("- The split does not follow time, so a change over time was not tested.")
    if result["num_samples"]["test"] < 200:
        lines.append("- The test has few rows, so the scores are rough.")
    return [*lines, f"- {_TO_WRITE}"]
