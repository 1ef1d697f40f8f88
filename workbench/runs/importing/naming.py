"""Decides what old runs are called here: names, objectives, configurations and search space."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue

from workbench.experiment.goals import Goal
from workbench.experiment.space import Space
from workbench.foundation.errors import ArgumentError, ExperimentError
from workbench.foundation.formatting import format_count
from workbench.runs.importing.old_runs import OldRun, OldRuns, is_seed, whole_step
from workbench.runs.importing.tables import without_prefix
from workbench.runs.scripts.objective_ranking import guessed_goal, likely_objectives

_INVALID = re.compile(r"[^\w.-]+")
_VALID = re.compile(r"[^\W\d]\w*(?:[.-]\w+)*")
_LOG_RATIO = 50.0
"""A range of positive numbers that spans this factor is searched on a logarithmic scale."""
_MAX_CHOICES = 100
_MAX_NAMED = 12
_MIN_LABELS = 5
"""With fewer runs, a text that differs in each of them may still be a choice."""
_MAX_SEED = 2**32


@dataclass
class Names:
    """What the runs of one source are called here.

    Attributes:
        objectives: Metrics and goals, under their new names.
        renamed: New names by old ones, of parameters and metrics alike.
        labels: Parameters that only name a run, such as its output folder.
        search: The search space, as an experiment writes it.
        notes: What was decided, as sentences without their full stops.
    """

    objectives: list[tuple[str, Goal]]
    renamed: dict[str, str]
    labels: list[str] = field(default_factory=list)
    search: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def select(self, group: OldRuns) -> None:
        """Keep the runs that have the objective, or failed before they had one."""
        kept = [run for run in group.runs if self.takes(run)]
        if missing := len(group.runs) - len(kept):
            group.left_out[f"without {self.objectives[0][0]}"] += missing
        group.runs = kept

    def takes(self, run: OldRun) -> bool:
        """Return whether a run has the objective, or failed before it had one."""
        reported = {self.renamed.get(name, name) for name in (*run.metrics, *run.results)}
        return self.objectives[0][0] in reported or (run.state == "failed" and bool(run.params))

    def params_of(self, run: OldRun) -> dict[str, JsonValue]:
        """Return the parameters of a run under their new names, without its seed."""
        params: dict[str, JsonValue] = {}
        for old, value in run.params.items():
            if is_seed(old):
                continue
            name = self.renamed.get(old) or _valid(old)
            is_whole = self.search.get(name, {}).get("type") == "int"
            is_whole = is_whole and isinstance(value, float) and value.is_integer()
            params[name] = int(value) if is_whole else value  # type: ignore[arg-type]
        return params

    def configuration_of(self, params: Mapping[str, JsonValue]) -> str:
        """Return what all trainings of the same configuration share."""
        told = {name: value for name, value in params.items() if name not in self.labels}
        return json.dumps(told, sort_keys=True, default=str)


def seed_of(run: OldRun) -> int:
    """Return the seed of a run, 0 if it has none."""
    for name, value in run.params.items():
        if is_seed(name) and (seed := whole_step(value)) is not None:
            return seed % _MAX_SEED
    return 0


def has_other_seed(run: OldRun) -> bool:
    """Return whether a run has a seed that is no whole number, so that 0 stands for it."""
    seeds = [value for name, value in run.params.items() if is_seed(name)]
    return any(seeds) and all(whole_step(value) is None for value in seeds)


def resolve_mapping(groups: Iterable[OldRuns], mapping: Mapping[str, str]) -> dict[str, str]:
    """Return a mapping by the names that runs have: `lr` for a column `params.lr`.

    Args:
        groups: All runs that will be imported.
        mapping: New names by old ones. A new name may say what a column is: `params.lr`.

    Raises:
        ArgumentError: If no run has an old name.
    """
    known = {name for group in groups for run in group.runs for name in _all_names(run)}
    resolved: dict[str, str] = {}
    for old, new in mapping.items():
        if not new.strip():
            raise ArgumentError(
                f"the new name of {old!r} is empty", field="map", allowed="OLD=NEW, such as lr=rate"
            )
        plain = old if old in known else without_prefix(old)
        if plain not in known:
            raise ArgumentError(f"no run has {old!r}", field="map", allowed=_some(sorted(known)))
        resolved[plain] = without_prefix(new)
    return resolved


def name_runs(
    group: OldRuns,
    mapping: Mapping[str, str],
    *,
    metric: str | None = None,
    goal: Goal | None = None,
) -> Names:
    """Decide the names, the objectives and the search space of old runs.

    Args:
        group: The runs.
        mapping: New names by old ones.
        metric: The objective under its new name, or None for that of the tool, or the most likely.
        goal: Its goal, or None for that of the tool, or the usual one.

    Raises:
        ArgumentError: If two names would be the same, or no metric can be the objective.
    """
    renamed = _rename(group.runs, mapping)
    metrics = {renamed[name]: None for run in group.runs for name in (*run.metrics, *run.results)}
    objectives: list[tuple[str, Goal]] = [
        (renamed.get(name, name), direction) for name, direction in group.objectives
    ]
    names = Names([], renamed)
    names.objectives = _choose(names.notes, objectives, list(metrics), (metric, goal))
    names.select(group)
    changed = [
        f"{old} is now {new}" for old, new in renamed.items() if old != new and old not in mapping
    ]
    if changed:
        names.notes.append(f"renamed: {_some(changed)}")
    _infer_space(group, names)
    return names


def _all_names(run: OldRun) -> list[str]:
    return [*run.params, *run.metrics, *run.results]


def _rename(runs: Iterable[OldRun], mapping: Mapping[str, str]) -> dict[str, str]:
    """Return the new name of every parameter and metric."""
    renamed: dict[str, str] = {}
    params: dict[str, str] = {}
    for run in runs:
        for name in run.params:
            new = mapping.get(name) or _valid(name)
            if params.setdefault(new, name) != name:
                raise ArgumentError(
                    f"{params[new]} and {name} would both be called {new}",
                    field="map",
                    next_step=f"Name one of them, such as --map {name}=OTHER.",
                )
            renamed[name] = new
        for name in (*run.metrics, *run.results):
            renamed.setdefault(name, mapping.get(name, name))
    taken = Counter(
        renamed[name] for name in {item for run in runs for item in (*run.metrics, *run.results)}
    )
    if twice := next((name for name, count in taken.items() if count > 1), None):
        raise ArgumentError(f"two metrics would be called {twice}", field="map")
    return renamed


def _valid(name: str) -> str:
    """Return a name that an experiment allows for a parameter."""
    if _VALID.fullmatch(name):
        return name
    plain = _INVALID.sub("_", name.replace("/", ".")).strip("._-")
    plain = re.sub(r"[.-]{2,}|[.-]_|_[.-]", "_", plain)
    if not plain or not _VALID.fullmatch(plain):
        plain = f"p_{re.sub(r'[^0-9A-Za-z_]+', '_', plain)}".rstrip("_")
    return plain


def _choose(
    notes: list[str],
    of_tool: list[tuple[str, Goal]],
    metrics: Sequence[str],
    given: tuple[str | None, Goal | None],
) -> list[tuple[str, Goal]]:
    metric, goal = given
    if metric is not None:
        if metric not in metrics:
            raise ArgumentError(
                f"no run has the metric {metric!r}", field="metric", allowed=_some(metrics)
            )
        return [(metric, goal or dict(of_tool).get(metric) or _usual(notes, metric))]
    if of_tool:
        if goal is not None and len(of_tool) == 1:
            return [(of_tool[0][0], goal)]
        return of_tool
    likely = likely_objectives(metrics) or list(metrics[:1] if len(metrics) == 1 else [])
    if not likely:
        raise ArgumentError(
            "no metric looks like an objective" if metrics else "no run has a metric",
            field="metric",
            allowed=_some(metrics) or None,
            next_step="Name it with --metric, and say with --goal which values are good.",
        )
    others = f" (others: {_some(likely[1:])})" if likely[1:] else ""
    chosen = likely[0], goal or guessed_goal(likely[0])
    notes.append(
        f"the objective is {chosen[0]}, to {chosen[1]}. Choose another one with --metric and"
        f" --goal{others}"
    )
    return [chosen]


def _usual(notes: list[str], metric: str) -> Goal:
    goal = guessed_goal(metric)
    notes.append(f"{metric} is to {goal}. If that is wrong, delete the run and add --goal")
    return goal


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MAX_NAMED])
    return f"{shown} and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else shown


# The search space.


def _infer_space(group: OldRuns, names: Names) -> None:
    """Add the search space that covers the values of all runs."""
    of_tool = {names.renamed.get(name, name): domain for name, domain in group.search.items()}
    values: dict[str, list[JsonValue]] = {}
    for run in group.runs:
        for name, value in names.params_of(run).items():
            values.setdefault(name, []).append(value)
    # A run that failed may have ended before it had all its parameters.
    ended = [run for run in group.runs if run.state != "failed"] or group.runs
    configurations = [names.params_of(run) for run in ended]
    domains: dict[str, dict[str, Any]] = {}
    partial: list[str] = []
    for name, known in values.items():
        domain = of_tool.get(name) or _domain(known)
        if domain is None:
            names.labels.append(name)
        else:
            domains[name] = domain
            if not all(name in params for params in configurations):
                partial.append(name)
    for name in partial:
        condition = _condition(name, configurations, domains, partial)
        if condition is None:
            del domains[name]
        else:
            domains[name] = {**domains[name], "when": condition}
    lost = [name for name in partial if name not in domains]
    if lost:
        names.notes.append(
            f"not in the search space, because only some runs have it: {_some(lost)}"
        )
    if names.labels:
        names.notes.append(
            "not in the search space, because it differs in nearly every run:"
            f" {_some(names.labels)}"
        )
    names.search = _allowed(domains, names.notes)


def _domain(values: Sequence[JsonValue]) -> dict[str, Any] | None:
    """Return the domain of some values, or None if they only name their runs."""
    distinct = list({json.dumps(value, sort_keys=True): value for value in values}.values())
    if len(distinct) == 1:
        return {"value": distinct[0]}
    if all(_is_number(value) for value in distinct):
        return _range([value for value in distinct if isinstance(value, int | float)])
    has_paths = all(isinstance(value, str) and re.search(r"[/\\]", value) for value in distinct)
    is_label = len(distinct) > 0.8 * len(values) and (has_paths or len(distinct) >= _MIN_LABELS)
    if is_label or len(distinct) > _MAX_CHOICES:
        return None
    return {"choices": sorted(distinct, key=lambda value: (str(type(value)), str(value)))}


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _range(values: list[float]) -> dict[str, Any]:
    low, high = min(values), max(values)
    domain: dict[str, Any] = {"low": low, "high": high}
    is_whole = all(float(value).is_integer() for value in values)
    domain["type"] = "int" if is_whole else "float"
    if is_whole:
        domain |= {"low": int(low), "high": int(high)}
    if low > 0 and high / low >= _LOG_RATIO:
        domain["log"] = True
    return domain


def _condition(
    name: str,
    configurations: Sequence[Mapping[str, JsonValue]],
    domains: Mapping[str, Mapping[str, Any]],
    partial: Collection[str],
) -> dict[str, Any] | None:
    """Return the values of another parameter on which a parameter depends, or None."""
    for parent, domain in domains.items():
        if parent in partial or "choices" not in domain:
            continue
        with_it = [item.get(parent) for item in configurations if name in item]
        without = [item.get(parent) for item in configurations if name not in item]
        if not any(value in without for value in with_it):
            wanted = [value for value in domain["choices"] if value in with_it]
            return {parent: wanted}
    return None


def _allowed(domains: Mapping[str, dict[str, Any]], notes: list[str]) -> dict[str, Any]:
    """Return the domains that an experiment allows."""
    kept: dict[str, Any] = {}
    refused: list[str] = []
    for name, domain in domains.items():
        try:
            Space({name: {key: value for key, value in domain.items() if key != "when"}})
        except ExperimentError:
            refused.append(name)
        else:
            kept[name] = domain
    for name in list(kept):
        if not kept.keys() >= kept[name].get("when", {}).keys():
            refused.append(name)
            del kept[name]
    if refused:
        notes.append(
            f"{format_count(len(refused), 'parameter')} cannot be searched: {_some(refused)}"
        )
    return kept
