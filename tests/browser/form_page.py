"""A page with nothing but a form on it, and its kernel: a real draft, and pictures as recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.browser import form_pictures
from tests.services.jupyter_lab import ROOT
from tests.services.waiting import wait_until
from workbench.foundation.errors import WorkbenchError
from workbench.views.forms.answers import sampled
from workbench.views.forms.draft import Draft
from workbench.views.forms.fields import state_of
from workbench.views.forms.protocol import Answer, to_message

FORM = ROOT / "workbench" / "views" / "widgets" / "static" / "form.js"
ALL_PARTS = ("model", "data", "space", "advice", "run", "result")
RUN_ID = "swift-otter-41"
_URL = "http://127.0.0.1:1/"
_HTML = """<!doctype html>
<html lang="en"><head><title>A form</title></head>
<body data-jp-theme-light="{light}" style="background: {background}"><main></main>
<script type="module">
  import widget from "/form.js";
  const listeners = new Set();
  const goings = new Set();
  window.kernelGoes = () => {{
    model.send = () => {{ throw new Error("Cannot send"); }};
    goings.forEach((hear) => hear());
  }};
  const tellAll = (answer) => [...listeners].forEach((hear) => hear(answer, []));
  window.fromKernel = (answers) => answers.forEach(tellAll);
  const heard = {{ "msg:custom": listeners, comm_live_update: goings }};
  const model = {{
    get: (name) => ({traits})[name],
    on: (name, listener) => heard[name]?.add(listener),
    off: (name, listener) => listeners.delete(listener),
    send: async (content) => window.fromKernel(await window.toKernel(content)),
  }};
  const place = () => document.querySelector("main").appendChild(document.createElement("div"));
  const show = () => widget.render({{ model, el: place() }});
  window.showAgain = show;
  show();
</script></body></html>"""


EXPERIMENT = """
name: digits
model: convnet
data: digits
objectives: [{metric: val_accuracy, goal: maximize}]
search:
  lr: {low: 1.0e-4, high: 0.3, log: true}
  width: {choices: [8, 16, 32]}
  num_blocks: {low: 1, high: 4}
  dropout: {low: 0.0, high: 0.4}
  optimizer: {choices: [sgd, adamw]}
  momentum: {low: 0.8, high: 0.98, when: {optimizer: sgd}}
training: {epochs: 15, global_batch: 64}
budget: {trials: 24, time: 2m30s}
early_stop: {pruner: asha, grace: 3}
"""


class FormKernel:
    """Answers a form at once, or, while it is busy, when it is asked to."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.heard: list[dict[str, Any]] = []
        self.pictures: dict[str, Any] = {
            "model": form_pictures.MODEL,
            "data": form_pictures.DATA,
            "advice": form_pictures.ADVICE,
            "what_if": form_pictures.WHAT_IF,
            "preflight": form_pictures.PREFLIGHT,
            "start": {"run_id": RUN_ID, "snapshot": "<p>Nothing yet.</p>"},
            "result": form_pictures.RESULT,
            "export": {"message": "Wrote best."},
        }
        self.is_busy = False
        self._waiting: list[dict[str, Any]] = []

    def hear(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the answers to a message."""
        if "type" not in message:  # of the live view
            return []
        if self.is_busy:
            self._waiting.append(message)
            return []
        self.heard.append(message)
        return self._answers(message)

    def wake(self, page: Any) -> None:
        """Answer what was said in the meantime."""
        self.is_busy = False
        waiting, self._waiting = self._waiting, []
        page.evaluate(
            "(answers) => window.fromKernel(answers)",
            [message for said in waiting for message in self.hear(said)],
        )

    def asked(self, part: str) -> list[dict[str, Any]]:
        """Return the arguments of all questions about a part."""
        return [
            message["arguments"]
            for message in self.heard
            if message["type"] == "query" and message["topic"] == part
        ]

    def edits(self) -> list[dict[str, Any]]:
        """Return all edits."""
        return [message for message in self.heard if message["type"] == "edit"]

    def _answers(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        if message["type"] == "query":
            return [self._part(message)]
        answers = []
        try:
            self._do(message)
        except WorkbenchError as error:
            answers.append(
                to_message(
                    Answer(topic="file", query=0, status="failed", problem=error.to_problem())
                )
            )
        return [*answers, to_message(state_of(self.draft, answered=message["number"]))]

    def _part(self, message: dict[str, Any]) -> dict[str, Any]:
        topic, query = message["topic"], message["query"]
        if topic == "samples":
            result = sampled(self.draft.experiment.search).model_dump()
        else:
            result = self.pictures[topic]
        if isinstance(result, WorkbenchError):
            return to_message(
                Answer(topic=topic, query=query, status="failed", problem=result.to_problem())
            )
        return to_message(Answer(topic=topic, query=query, status="done", result=result))

    def _do(self, message: dict[str, Any]) -> None:
        draft = self.draft
        match message:
            case {"type": "edit", "changes": changes, "removals": removals, "label": label}:
                pairs = [(path, value) for path, value in changes]
                draft.edit(pairs, removals=removals, label=label)
            case {"type": "remove", "path": path}:
                draft.edit([], removals=[path], label="Remove")
            case {"type": "rename", "path": path, "name": name}:
                draft.rename(path, name)
            case {"type": "save", "path": path, "overwrite": overwrite}:
                draft.save(path, overwrite=overwrite)
            case {"type": "address", "address": address}:
                draft.address = address
            case {"type": "undo" | "redo" as step}:
                getattr(draft, step)()
            case {"type": "yaml" | "python" as language, "text": text}:
                {"yaml": draft.write_yaml, "python": draft.write_python}[language](text)
            case {"type": "preset", "name": name}:
                draft.preset(name)
            case {"type": "open", "path": path}:
                draft.open(path)


def open_form(
    page: Any,
    kernel: FormKernel,
    parts: tuple[str, ...] = ALL_PARTS,
    *,
    dark: bool = False,
    run_id: str = "",
) -> Any:
    """Show a form on a page and wait until it is there."""
    traits = json.dumps({"parts": parts, "run_id": run_id})
    html = _HTML.format(
        light="false" if dark else "true", background="#111" if dark else "#fff", traits=traits
    )
    script = Path(FORM).read_text(encoding="utf-8")
    if not hasattr(page, "form_kernel"):
        # Numbers in what Python answers are those of JSON, as they are in a message of a widget.
        page.expose_binding(
            "toKernel",
            lambda _source, message: json.loads(json.dumps(page.form_kernel.hear(message))),
        )
    page.form_kernel = kernel
    page.route(_URL, lambda route: route.fulfill(content_type="text/html", body=html))
    page.route(
        f"{_URL}form.js", lambda route: route.fulfill(content_type="text/javascript", body=script)
    )
    page.goto(_URL)
    page.locator(".workbench-form .workbench-form-head").wait_for()
    return page


def leave_form(page: Any) -> None:
    """Leave a page as one that was never used, for the form of another test."""
    page.evaluate("() => sessionStorage.clear()")
    page.goto("about:blank")
    page.unroute_all()
    page.emulate_media(forced_colors="null")
    page.mouse.move(0, 0)
    page.complaints.clear()


def show(page: Any, part: str) -> Any:
    page.get_by_role("tab", name=part).click()
    return page.get_by_role("tabpanel", name=part)


def enter(field: Any, text: str) -> None:
    field.fill(text)
    field.press("Enter")


def row(page: Any, name: str) -> Any:
    return page.get_by_role("group", name=name, exact=True)


def until(page: Any, is_true: Any) -> None:
    """Wait for something that the page tells the kernel."""
    wait_until(lambda: page.wait_for_timeout(50) or is_true())
