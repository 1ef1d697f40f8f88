"""What a form asks that takes a while: each answer, as plain values, from the room that knows it.

In which thread an answer is made, and whether somebody still waits for it, is left to `questions`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from workbench.errors import ExperimentError, RunError
from workbench.experiment import Experiment
from workbench.forms.draft import Draft
from workbench.forms.samples import sampled
from workbench.run import Run, advise, attach, create, start, submit
from workbench.run.attached import open_store
from workbench.store import Store
from workbench.store.urls import is_shared
from workbench.workers.jobs import is_jobs_address

Answer = dict[str, Any]
_AUTO = "auto"
_DEFAULT_TIME = "1m"


@dataclass
class Desk:
    """What answers are made from: the draft, the store, and what was found on the way.

    Attributes:
        draft: What somebody is working on.
        store: Where runs are kept; None for the usual store.
        run_id: The run that was started last; "" before.
        advice_id: The run of the advice that was shown last.
    """

    draft: Draft
    store: Store | str | None = None
    run_id: str = ""
    advice_id: str | None = None
    _models: dict[str, Any] = field(default_factory=dict)

    def opened(self) -> Store:
        """Return the store, opened once."""
        if not isinstance(self.store, Store):
            self.store = open_store(self.store)
        return self.store

    def right(self) -> Experiment:
        """Return the experiment where nothing is wrong with it.

        Raises:
            WorkbenchError: What is wrong first.
        """
        if self.draft.problems:
            raise self.draft.problems[0]
        return self.draft.experiment

    def models_of(self, run_id: str) -> Any:
        """Return the fitted models of an advice, fitted once."""
        from workbench.run.what_if import models_of

        if run_id not in self._models:
            self._models = {run_id: models_of(attach(run_id, store=self.opened()))}
        return self._models[run_id]


Say = Callable[[str], None]


def answer(desk: Desk, part: str, arguments: Mapping[str, Any], say: Say) -> Answer:
    """Answer a question.

    Args:
        desk: What it is answered from.
        part: What is asked.
        arguments: How it is asked, by name.
        say: Told in a few words how far the answer is.

    Raises:
        WorkbenchError: If there is no answer, with the reason.
    """
    if part not in _ANSWERS:
        raise ExperimentError(f"nothing answers {part!r}", field="part", allowed=list(_ANSWERS))
    return _ANSWERS[part](desk, dict(arguments), say)


def _model(desk: Desk, _arguments: Answer, _say: Say) -> Answer:
    from workbench.advisor.model_preview import preview_model

    return preview_model(desk.draft.experiment)


def _data(desk: Desk, _arguments: Answer, _say: Say) -> Answer:
    from workbench.training.data_picture import picture_data

    return picture_data(desk.draft.experiment, needed_samples_per_s=_needed_samples_per_s(desk))


def _needed_samples_per_s(desk: Desk) -> float | None:
    """Return what training takes by the advice for this experiment, where there is one."""
    from workbench.advisor.stored_advice import finite, mapping

    run = _stored_advice(desk)
    choice = mapping(mapping(None if run is None else run.advice).get("choice"))
    return finite(mapping(choice.get("samples_per_s")).get("value"))


def _samples(desk: Desk, _arguments: Answer, _say: Say) -> Answer:
    return sampled(desk.draft.experiment.search)


def _advice(desk: Desk, arguments: Answer, say: Say) -> Answer:
    if arguments.get("measure"):
        _measure(desk, arguments, say)
    run = _stored_advice(desk)
    if run is None:
        return {"card": [], "figures": [], "apply": [], "controls": []}
    desk.advice_id = run.run_id
    return _advice_picture(desk, run)


def _measure(desk: Desk, arguments: Answer, say: Say) -> None:
    from workbench.events import Event
    from workbench.run.narrator import measurement_line

    def tell(event: Event) -> None:
        line = measurement_line(event)
        if line is not None:
            say(line)

    desk.advice_id = None
    try:
        advise(
            desk.right(), objective=arguments.get("objective", "time"), store=desk.opened(),
            time=arguments.get("time", _DEFAULT_TIME), address=desk.draft.address, listener=tell,
        )  # fmt: skip
    except KeyboardInterrupt as error:  # somebody asked the run of the advice to stop
        raise RunError("stopped; what was measured is kept, and used when you ask again") from error


def _stored_advice(desk: Desk) -> Run | None:
    """Return the newest advice for the experiment, or else the last one for its model and data."""
    store, experiment = desk.opened(), desk.draft.experiment
    wanted = experiment.hash()
    found = [row.run_id for row in store.runs() if row.experiment_hash == wanted]
    for run in [attach(run_id, store=store) for run_id in [*found, *filter(None, [desk.advice_id])]]:
        is_alike = (run.experiment.model, run.experiment.data) == (experiment.model, experiment.data)
        if is_alike and run.is_advice and run.advice is not None:
            return run
    return None


def _advice_picture(desk: Desk, run: Run) -> Answer:
    from workbench.advisor.card import lines_of

    advice = run.advice or {}
    choice = advice.get("choice", {})
    return {
        "card": lines_of(advice),
        "figures": list(_figures(run)),
        "apply": [_applied(desk.draft, path, value) for path, value in advice.get("settings", {}).items()],
        "controls": _controls(desk, run, choice.get("plan", {}), advice.get("objective", "time")),
    }


def _figures(run: Run) -> list[Answer]:
    from workbench.plots.figures_advice import ADVICE_FIGURES

    drawn = {name: json.loads(run.figure(name).to_json() or "{}") for name in ADVICE_FIGURES}
    return [
        {"name": name, "title": name.replace("_", " ").capitalize(), "figure": figure}
        for name, figure in drawn.items()
        if figure.get("data")
    ]


def _applied(draft: Draft, path: str, value: Any) -> Answer:
    """Return a setting that an advice would change; what it decides is not searched."""
    section, _, name = path.partition(".")
    written = draft.document.get(section)
    is_searched = name in draft.experiment.search.root
    now = written.get(name) if isinstance(written, Mapping) else None
    return {
        "path": path,
        "label": f"{section}: {name.replace('_', ' ')}",
        "now": "searched" if is_searched else now,
        "value": value,
        "reason": None,
        "removals": [f"search.{name}"] if is_searched else [],
    }


def _controls(desk: Desk, run: Run, plan: Mapping[str, Any], objective: str) -> list[Answer]:
    try:
        allowed = desk.models_of(run.run_id).controls()
    except ExperimentError:  # an advice of which nothing can be asked
        return []
    chosen = {**plan, "objective": objective}
    return [
        {
            "path": name, "label": name.replace("_", " ").capitalize(), "kind": "choice", "default": _AUTO,
            "choices": values if name == "objective" else [_AUTO, *values], "value": chosen.get(name, _AUTO),
        }
        for name, values in allowed.items()
    ]  # fmt: skip


def _what_if(desk: Desk, arguments: Answer, _say: Say) -> Answer:
    from workbench.advisor.what_if import Wish

    if desk.advice_id is None:
        raise ExperimentError(
            "nothing was measured that could be asked", next_step="Ask for an advice first."
        )
    known = {name: value for name, value in arguments.items() if name in Wish.__dataclass_fields__}
    wish = Wish(**{name: value for name, value in known.items() if value not in (None, _AUTO)})
    return desk.models_of(desk.advice_id).ask(wish)


def _preflight(desk: Desk, _arguments: Answer, _say: Say) -> Answer:
    from workbench.run.look_ahead import look_ahead

    return look_ahead(desk.draft.experiment, store=desk.opened(), address=desk.draft.address)


def _start(desk: Desk, _arguments: Answer, say: Say) -> Answer:
    from workbench.run.output import snapshot

    address = desk.draft.address
    if is_jobs_address(address):
        return _submit(desk, str(address), say)
    run = create(desk.right(), store=desk.opened(), address=address)
    desk.run_id = run.run_id
    say(f"starting the driver of {run.run_id}")
    start(run, address=address)
    return {"run_id": run.run_id, "snapshot": snapshot(run)}


def _submit(desk: Desk, address: str, say: Say) -> Answer:
    """Send the run to a cluster; where that keeps it in the store that is open here, it is shown."""
    from workbench.run.output import snapshot

    store = desk.opened()
    shared = is_shared(store.url)
    say(f"sending it to {address}")
    sent = submit(desk.right(), address=address, store=store.url if shared else None)
    if shared:
        desk.run_id = sent.run_id
        return {"run_id": sent.run_id, "snapshot": snapshot(attach(sent.run_id, store=store))}
    words = f"{sent.run_id} runs there. Look at it: workbench show {sent.run_id} --address {address}"
    return {"run_id": "", "snapshot": "", "words": words}


def _stop_advice(desk: Desk, _arguments: Answer, _say: Say) -> Answer:
    store, wanted = desk.opened(), desk.draft.experiment.hash()
    for row in store.runs():
        run = Run(store, row.run_id)
        if row.experiment_hash == wanted and row.state == "running" and run.is_advice:
            run.command("stop", {})
            return {"words": "The advice ends; what was measured is kept."}
    raise RunError("no advice is under way")


def _result(desk: Desk, arguments: Answer, _say: Say) -> Answer:
    from workbench.run.result import result_of

    return result_of(_run(desk, arguments))


def _export(desk: Desk, arguments: Answer, _say: Say) -> Answer:
    folder = _run(desk, arguments).export(arguments.get("to") or "best", trial=arguments.get("trial"))
    return {"words": f"Written to {folder}."}


def _extend(desk: Desk, arguments: Answer, _say: Say) -> Answer:
    trials, time = arguments.get("trials"), arguments.get("time")
    if isinstance(trials, bool) or not isinstance(trials, int | None):
        raise ExperimentError(f"is {trials!r}", field="trials", allowed="a whole number")
    said = _run(desk, arguments).extend(trials=trials, time=time, address=desk.draft.address)
    return {"words": said or "Asked; the driver will answer when it can."}


def _enqueue(desk: Desk, arguments: Answer, _say: Say) -> Answer:
    run, params = _run(desk, arguments), arguments.get("params")
    if not isinstance(params, dict):
        raise ExperimentError("is no configuration", field="params", allowed="values by name")
    if run.finished:
        said = run.extend(trials=1, enqueue=params, address=desk.draft.address)
    else:
        said = run.enqueue(params)
    return {"words": said or "Asked; the driver will answer when it can."}


def _run(desk: Desk, arguments: Answer) -> Run:
    run_id = arguments.get("run_id") or desk.run_id
    if not run_id:
        raise RunError("nothing was run yet", next_step="Start the run first.")
    return attach(run_id, store=desk.opened())


_ANSWERS: dict[str, Callable[[Desk, Answer, Say], Answer]] = {
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
