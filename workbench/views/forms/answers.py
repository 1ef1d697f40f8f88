"""The results of queries of a form, each computed by the package that owns the subject.

Threads, and dropping answers that are no longer needed, are left to `queries`.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from workbench.experiment import Component, Experiment
from workbench.experiment.actions import is_jobs_address, write_for_panel
from workbench.experiment.domain import Domain, Float, Int, same_value
from workbench.experiment.space import Space
from workbench.foundation.errors import ExperimentError, RunError, Suggestion
from workbench.runs import Run, advise, attach, create, start, submit
from workbench.runs.run import open_store
from workbench.store.database import Store
from workbench.store.database.urls import is_shared
from workbench.views.forms.draft import Draft
from workbench.views.forms.protocol import FormField
from workbench.views.forms.results import (
    AdviceSummary,
    AdvisedSetting,
    Confirmation,
    DataSummary,
    Figure,
    ModelPreview,
    NamedFigure,
    PreflightReport,
    RunResult,
    SampledParameter,
    SampledSpace,
    StartedRun,
    WhatIfResult,
)

_NUM_SAMPLES, _NUM_BINS, _SEED = 1000, 20, 0
"""How often a search space is sampled to be shown, in how many bins, and with which seed."""
_MAX_CASES = 4096
"""With more combinations of parents, the share of a parameter is that of the sample."""


_AUTO = "auto"
_DEFAULT_TIME = "1m"
_PENDING = "Requested. The driver has not answered yet."


@dataclass
class QueryContext:
    """The basis of answers: the draft, the store, and the latest runs.

    Attributes:
        draft: The draft of the experiment.
        store: Where runs are kept, or None for the default store.
        run_id: The run that was started last, or "" if there is none.
        advice_id: The run of the advice that was shown last.
    """

    draft: Draft
    store: Store | str | None = None
    run_id: str = ""
    advice_id: str | None = None
    _models: dict[str, Any] = field(default_factory=dict)

    def open_store(self) -> Store:
        """Return the store, which is opened once."""
        if not isinstance(self.store, Store):
            self.store = open_store(self.store)
        return self.store

    def valid_experiment(self) -> Experiment:
        """Return the experiment if it is valid.

        Raises:
            WorkbenchError: The first problem.
        """
        if self.draft.problems:
            raise self.draft.problems[0]
        return self.draft.experiment

    def with_written_data(self) -> Experiment:
        """Return the last valid experiment with the data that is written now, whatever else is
        wrong.

        Raises:
            ExperimentError: If the data is not valid itself.
        """
        draft = self.draft
        written = self.draft.document.get("data")
        if draft.is_experiment or written == draft.experiment.model_dump(mode="json").get("data"):
            return draft.experiment
        wrong = ExperimentError("cannot be read until the experiment is right", field="data")
        try:
            data = Component.model_validate(written)
        except ValueError as error:
            raise wrong from error
        if data.is_reference:  # its code may be embedded in the experiment
            raise wrong
        return draft.experiment.model_copy(update={"data": data})

    def models_of(self, run_id: str) -> Any:
        """Return the fitted models of advice, which are fitted once."""
        from workbench.runs.what_if import models_of

        if run_id not in self._models:
            self._models = {run_id: models_of(attach(run_id, store=self.open_store()))}
        return self._models[run_id]


Report = Callable[[str], None]
Arguments = dict[str, Any]


def answer(
    context: QueryContext, topic: str, arguments: Mapping[str, Any], report: Report
) -> BaseModel:
    """Compute the result of a query.

    Args:
        context: The basis of the answer.
        topic: The topic.
        arguments: The arguments by name.
        report: Receives the progress as text.

    Returns:
        The result, of the type that `protocol.Results` declares for the topic.

    Raises:
        WorkbenchError: If there is no result, with the reason.
    """
    if topic not in _ANSWERS:
        raise ExperimentError(
            f"no query has the topic {topic!r}", field="topic", allowed=list(_ANSWERS)
        )
    if topic in _WITH_TORCH and "torch" not in sys.modules:
        report("torch is loaded, which takes a few seconds the first time")
    return _ANSWERS[topic](context, dict(arguments), report)


def _model(context: QueryContext, _arguments: Arguments, _report: Report) -> ModelPreview:
    from workbench.advisor.memory import preview_model

    return ModelPreview.model_validate(preview_model(context.draft.experiment))


def _data(context: QueryContext, _arguments: Arguments, _report: Report) -> DataSummary:
    from workbench.training.probes.data_summary import picture_data

    needed = _needed_samples_per_s(context)
    picture = picture_data(context.with_written_data(), needed_samples_per_s=needed)
    return DataSummary.model_validate(picture)


def _needed_samples_per_s(context: QueryContext) -> float | None:
    """Return the samples per second that training needs according to the advice, if there is
    one.
    """
    from workbench.advisor.stored_advice import finite, mapping

    run = _stored_advice(context)
    choice = mapping(mapping(None if run is None else run.advice).get("choice"))
    return finite(mapping(choice.get("samples_per_s")).get("value"))


def _samples(context: QueryContext, _arguments: Arguments, _report: Report) -> SampledSpace:
    return sampled(context.draft.experiment.search)


def _advice(context: QueryContext, arguments: Arguments, report: Report) -> AdviceSummary:
    if arguments.get("measure"):
        _measure(context, arguments, report)
    run = _stored_advice(context)
    if run is None:
        return AdviceSummary(card=None, figures=(), apply=(), controls=())
    context.advice_id = run.run_id
    return _advice_summary(context, run)


def _measure(context: QueryContext, arguments: Arguments, report: Report) -> None:
    from workbench.foundation.events import Event
    from workbench.runs.event_lines import advice_line

    def on_event(event: Event) -> None:
        if (line := advice_line(event)) is not None:
            report(line)

    context.advice_id = None
    try:
        advise(
            context.valid_experiment(),
            objective=arguments.get("objective", "time"),
            store=context.open_store(),
            time=arguments.get("time", _DEFAULT_TIME),
            address=context.draft.address,
            listener=on_event,
        )
    except KeyboardInterrupt as error:  # the run of the advice was stopped
        raise RunError(
            "the advice was stopped. Its measurements are kept and used the next time"
        ) from error


def _stored_advice(context: QueryContext) -> Run | None:
    """Return the newest advice for the experiment, or else the last shown for its model and
    data.
    """
    store, experiment = context.open_store(), context.draft.experiment
    wanted = experiment.hash()
    same = [row.run_id for row in store.runs() if row.experiment_hash == wanted]
    for run in [
        attach(run_id, store=store) for run_id in [*same, *filter(None, [context.advice_id])]
    ]:
        is_alike = (run.experiment.trained, run.experiment.data) == (
            experiment.trained,
            experiment.data,
        )
        if is_alike and run.is_advice and run.advice is not None:
            return run
    return None


def _advice_summary(context: QueryContext, run: Run) -> AdviceSummary:
    from workbench.advisor.advice_card import card_of

    advice = run.advice or {}
    choice = advice.get("choice", {})
    settings = advice.get("settings", {})
    return AdviceSummary(
        card=card_of(advice),
        figures=tuple(_figures(run)),
        apply=tuple(_advised(context.draft, path, value) for path, value in settings.items()),
        controls=tuple(
            _controls(context, run, choice.get("plan", {}), advice.get("objective", "time"))
        ),
    )


def _figures(run: Run) -> list[NamedFigure]:
    from workbench.runs.plots.figures_advice import ADVICE_FIGURES

    drawn = {name: json.loads(run.figure(name).to_json() or "{}") for name in ADVICE_FIGURES}
    return [
        NamedFigure(name=name, title=name.replace("_", " ").capitalize(), figure=Figure(**figure))
        for name, figure in drawn.items()
        if figure.get("data")
    ]


def _advised(draft: Draft, path: str, value: Any) -> AdvisedSetting:
    """Return a setting that advice would change. Once applied, it is no longer searched."""
    section, _, name = path.partition(".")
    written = draft.document.get(section)
    is_searched = name in draft.experiment.search.root
    now = written.get(name) if isinstance(written, Mapping) else None
    return AdvisedSetting(
        path=path,
        label=f"{section}: {name.replace('_', ' ')}",
        now="searched" if is_searched else now,
        value=value,
        removals=(f"search.{name}",) if is_searched else (),
    )


def _controls(
    context: QueryContext, run: Run, plan: Mapping[str, Any], objective: str
) -> list[FormField]:
    try:
        allowed = context.models_of(run.run_id).controls()
    except RunError:  # advice without fitted models
        return []
    chosen = {**plan, "objective": objective}
    return [
        FormField(
            path=name,
            label=name.replace("_", " ").capitalize(),
            kind="choice",
            default=_AUTO,
            choices=tuple(values) if name == "objective" else (_AUTO, *values),
            value=chosen.get(name, _AUTO),
        )
        for name, values in allowed.items()
    ]


def _what_if(context: QueryContext, arguments: Arguments, _report: Report) -> WhatIfResult:
    from workbench.advisor.what_if import PlanQuery

    if context.advice_id is None:
        raise ExperimentError("nothing has been measured yet", next_step="Ask for advice first.")
    plan_arguments = {
        name: value for name, value in arguments.items() if name in PlanQuery.__dataclass_fields__
    }
    query = PlanQuery(
        **{name: value for name, value in plan_arguments.items() if value not in (None, _AUTO)}
    )
    return WhatIfResult.model_validate(context.models_of(context.advice_id).answer(query))


def _preflight(context: QueryContext, _arguments: Arguments, _report: Report) -> PreflightReport:
    from workbench.runs.dry_run import forecast_run

    forecast = forecast_run(
        context.draft.experiment, store=context.open_store(), address=context.draft.address
    )
    return PreflightReport.model_validate(forecast)


def _start(context: QueryContext, _arguments: Arguments, report: Report) -> StartedRun:
    from workbench.runs.notebook_output import snapshot

    address = context.draft.address
    if is_jobs_address(address):
        return _submit(context, str(address), report)
    run = create(context.valid_experiment(), store=context.open_store(), address=address)
    context.run_id = run.run_id
    report(f"starting the driver of {run.run_id}")
    start(run, address=address)
    return StartedRun(run_id=run.run_id, snapshot=snapshot(run.stored))


def _submit(context: QueryContext, address: str, report: Report) -> StartedRun:
    """Submit the run to a cluster. It is shown here if its store is the one that is open."""
    from workbench.runs.notebook_output import snapshot

    store = context.open_store()
    shared = is_shared(store.url)
    report(f"submitting it to {address}")
    sent = submit(context.valid_experiment(), address=address, store=store.url if shared else None)
    if shared:
        context.run_id = sent.run_id
        return StartedRun(
            run_id=sent.run_id, snapshot=snapshot(attach(sent.run_id, store=store).stored)
        )
    words = ("show", sent.run_id, "--address", address)
    step = Suggestion("To show it", "show", sent.run_id, {"address": address}, words=words)
    return StartedRun(
        run_id="", message=f"{sent.run_id} runs on the cluster. {write_for_panel(step)}"
    )


def _stop_advice(context: QueryContext, _arguments: Arguments, _report: Report) -> Confirmation:
    store, wanted = context.open_store(), context.draft.experiment.hash()
    for row in store.runs():
        run = Run(store, row.run_id)
        if row.experiment_hash == wanted and row.state == "running" and run.is_advice:
            run.command("stop", {})
            return Confirmation(message="The advice is stopping. Its measurements are kept.")
    raise RunError("no advice is running")


def _result(context: QueryContext, arguments: Arguments, _report: Report) -> RunResult:
    from workbench.runs.result import result_of

    return RunResult.model_validate(result_of(_run(context, arguments).stored))


def _export(context: QueryContext, arguments: Arguments, _report: Report) -> Confirmation:
    folder = _run(context, arguments).export(
        arguments.get("to") or "best", trial=arguments.get("trial")
    )
    return Confirmation(message=f"Exported to {folder}.")


def _extend(context: QueryContext, arguments: Arguments, _report: Report) -> Confirmation:
    trials, time = arguments.get("trials"), arguments.get("time")
    if isinstance(trials, bool) or not isinstance(trials, int | None):
        raise ExperimentError(f"is {trials!r}", field="trials", allowed="a whole number")
    reply = _run(context, arguments).extend(trials=trials, time=time, address=context.draft.address)
    return Confirmation(message=reply or _PENDING)


def _enqueue(context: QueryContext, arguments: Arguments, _report: Report) -> Confirmation:
    run, params = _run(context, arguments), arguments.get("params")
    if not isinstance(params, dict):
        raise ExperimentError(
            "is not a configuration", field="params", allowed="values by parameter name"
        )
    if run.finished:
        reply = run.extend(trials=1, enqueue=params, address=context.draft.address)
    else:
        reply = run.enqueue(params)
    return Confirmation(message=reply or _PENDING)


def _run(context: QueryContext, arguments: Arguments) -> Run:
    run_id = arguments.get("run_id") or context.run_id
    if not run_id:
        raise RunError("no run has been started yet", next_step="Start the run first.")
    return attach(run_id, store=context.open_store())


def sampled(space: Space, num_samples: int = _NUM_SAMPLES) -> SampledSpace:
    """Sample a search space at random, and count the values of each parameter.

    Args:
        space: The search space.
        num_samples: Number of configurations, at least 1.
    """
    rng = random.Random(_SEED)
    drawn = [space.sample(rng) for _ in range(num_samples)]
    parameters = []
    for name, domain in space.root.items():
        values = [params[name] for params in drawn if name in params]
        share = _exists_share(space, name)
        if share is None:
            share = len(values) / num_samples
        parameters.append(
            SampledParameter(name=name, exists_share=share, **_counted(domain, values))
        )
    return SampledSpace(num_samples=num_samples, parameters=tuple(parameters))


def _exists_share(space: Space, name: str) -> float | None:
    """Return the share of configurations with a parameter, or None if it cannot be counted.

    It follows from the values of the parameters that it depends on, which are equally probable.
    """
    cases: list[tuple[float, dict[str, Any]]] = [(1.0, {})]
    for parent in _ancestors(space, name):
        domain = space.root[parent]
        values = list(itertools.islice(domain.values() or (), _MAX_CASES))
        if not values or getattr(domain, "log", False):
            return None
        with_parent = [case for case in cases if space.exists(parent, case[1])]
        without = [case for case in cases if not space.exists(parent, case[1])]
        if len(values) * len(with_parent) > _MAX_CASES:
            return None
        cases = without + [
            (share / len(values), {**params, parent: value})
            for share, params in with_parent
            for value in values
        ]
    return math.fsum(share for share, params in cases if space.exists(name, params))


def _ancestors(space: Space, name: str) -> list[str]:
    """Return the parameters that a parameter depends on, parents before children."""
    wanted: set[str] = set()
    waiting = list(space.root[name].when)
    while waiting:
        parent = waiting.pop()
        if parent not in wanted:
            wanted.add(parent)
            waiting += space.root[parent].when
    return [parent for parent in space.order() if parent in wanted]


def _counted(domain: Domain, values: list[Any]) -> dict[str, Any]:
    allowed = domain.values()
    if isinstance(domain, Float | Int) and (allowed is None or _is_longer(allowed, _NUM_BINS)):
        return _histogram(domain, values)
    choices = list(allowed or ())
    counts = [sum(same_value(value, choice) for value in values) for choice in choices]
    # The sample is what a run might try. What each value has in the long run is not a matter of
    # luck.
    even = not getattr(domain, "log", False)
    shares = [1 / len(choices)] * len(choices) if choices and even else None
    return {"kind": "choices", "choices": choices, "counts": counts, "shares": shares}


def _is_longer(values: Any, most: int) -> bool:
    # len() fails for a very long range.
    return bool(values[most : most + 1])


def _histogram(domain: Float | Int, values: list[float]) -> dict[str, Any]:
    def place(value: float) -> float:
        return math.log(value) if domain.log else float(value)

    low, high = place(domain.low), place(domain.high)
    counts = [0] * _NUM_BINS
    for value in values:
        share = (place(value) - low) / ((high - low) or 1.0)
        counts[min(int(share * _NUM_BINS), _NUM_BINS - 1)] += 1
    places = [low + (high - low) * (index / _NUM_BINS) for index in range(1, _NUM_BINS)]
    inner = [math.exp(edge) if domain.log else edge for edge in places]
    return {"kind": "range", "edges": [domain.low, *inner, domain.high], "counts": counts}


_WITH_TORCH = ("model", "data", "advice", "preflight", "start")
"""Topics whose answers load torch, and keep the kernel from anything else meanwhile."""
_ANSWERS: dict[str, Callable[[QueryContext, Arguments, Report], BaseModel]] = {
    "model": _model,
    "data": _data,
    "samples": _samples,
    "advice": _advice,
    "what_if": _what_if,
    "stop_advice": _stop_advice,
    "preflight": _preflight,
    "start": _start,
    "result": _result,
    "export": _export,
    "extend": _extend,
    "enqueue": _enqueue,
}
