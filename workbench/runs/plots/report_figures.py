"""The figures of the report: the section of each, its caption, and its picture.

If a figure cannot be drawn, the report says so in its place. The rest does not depend on it.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Mapping

from workbench.foundation.errors import Suggestion
from workbench.runs.plots.figures import FIGURES
from workbench.runs.plots.figures_advice import ADVICE_FIGURES
from workbench.runs.plots.prepare import default_axis, model_figures
from workbench.runs.plots.prepare_learning import prepare_noise
from workbench.runs.plots.prepare_search import prepare_importance
from workbench.runs.plots.prepare_trials import searched
from workbench.runs.plots.report_answers import CAPTIONS, advice_card
from workbench.runs.plots.report_tables import text
from workbench.runs.plots.run_data import RunData
from workbench.runs.plots.series import THROUGHPUT
from workbench.runs.plots.svg import WIDTH_PX, HoverTexts, figure_svg, spec_of
from workbench.store.history import verdicts_of
from workbench.store.history.lineage import describe_continued

_AXIS_PX = 84
"""Width that an axis of parallel coordinates needs for its labels."""
_LEAST_PART = 0.75
"""Texts can be read down to this part of their size. On a narrower screen the figure scrolls."""

logger = logging.getLogger(__name__)


class ReportFigures:
    """The figures of the page, and the texts that the script at its end shows for their marks."""

    def __init__(
        self,
        run: RunData,
        importance: Mapping[str, tuple[float, float, float]] | None,
        how_to_freeze: Suggestion | None,
    ) -> None:
        self.run = run
        self.importance = importance
        self.how_to_freeze = how_to_freeze
        self.hover = HoverTexts()

    def advice(self) -> list[str]:
        """Return the section on advice, with the figures that have data."""
        if not self.run.advice.exists:
            return []
        parts = ["<h2>Advice</h2>", *advice_card(self.run)]
        for name, advised in ADVICE_FIGURES.items():
            try:
                data = advised.prepare(self.run)
            except Exception as error:
                parts.append(_not_drawn(name, error))
                continue
            if not data.empty:
                parts.append(self._figure(name, text(data.subtitle)))
        return parts

    def model(self) -> list[str]:
        """Return the section on the model that an automatic run chose."""
        names = model_figures(self.run.history)
        parts = [self._figure(name, CAPTIONS[name]) for name in names]
        if not parts:
            return []
        return ["<h2>The model on samples that no trial has seen</h2>", *parts]

    def sections(self) -> list[str]:
        """Return the sections on how the trials went."""
        run = self.run
        objective = run.experiment.objectives[0]
        curves = run.series.curves(objective.metric)
        parts: list[str] = []
        if len(run.experiment.objectives) > 1:
            parts += [
                "<h2>Trade-offs between objectives</h2>",
                self._figure(
                    "pareto", "No other trial beats those on the front in every objective."
                ),
            ]
        if curves:
            axis = default_axis(curves)
            is_continued = not run.experiment.fidelity and describe_continued(run.history)
            joins = " A continuation joins the stopped trial." * bool(is_continued)
            if any(trial.inherits for trial in run.history.trials.values()):
                joins += " A clone starts where it leaves its parent."
            parts += [
                "<h2>How the trials converged</h2>",
                self._figure(
                    "convergence",
                    "Each line is one trial. The dotted stair is the best "
                    f"{text(objective.metric)} that any trial had reached by that {axis}.{joins}",
                    axis=axis,
                    close_up=True,
                ),
            ]
            if axis != "time":
                parts.append(
                    self._figure(
                        "convergence",
                        "The same over the run time.",
                        name="by-time",
                        axis="time",
                        close_up=True,
                    )
                )
        if any(trial.segment is not None for trial in run.history.trials.values()):
            parts += [
                "<h2>Who continued from whom</h2>",
                self._figure(
                    "schedule", "Parts of trainings. Steps lead from the trial that one continues."
                ),
            ]
        if run.advice.noise_scales() and not run.advice.exists:
            parts.append(self._figure("noise", text(prepare_noise(run).subtitle)))
        if run.history.ranked():
            parts += [
                "<h2>What influenced the result</h2>",
                self._importance(),
                self._parallel(),
                self._slices(),
            ]
        if any(trial.attempts for trial in run.history.trials.values()):
            parts += [
                "<h2>Where the time went</h2>",
                *(
                    f'<p class="notice">{text(verdict.text)}.</p>'
                    for verdict in verdicts_of(run.history)
                ),
                self._figure("timeline", "One bar per trial, from its start to its end."),
            ]
        if run.series.curves(THROUGHPUT):
            parts.append(self._figure("throughput", "Training speed of each trial while it ran."))
        return parts

    def _searched(self) -> int:
        return len(searched(self.run.history.searched, self.run.history.ranked()))

    def _slices(self) -> str:
        return self._figure(
            "slice",
            f"{text(self.run.experiment.objectives[0].metric)} over each parameter, one dot per"
            " trial.",
        )

    def _parallel(self) -> str:
        if self._searched() < 2:
            return ""  # the slices show as much
        return self._figure(
            "parallel",
            "Each line is one trial, from its parameters to its result. Grey lines were pruned; "
            "<em>not set</em> means that the parameter does not exist in that configuration.",
            width=max(WIDTH_PX, _AXIS_PX * (self._searched() + 1)),
        )

    def _importance(self) -> str:
        if not self.importance:
            return ""
        caption = (
            "Share of each parameter in the variance over the whole space, with its 90 % interval. "
        )
        caption += "An effect that parameters only have together counts for each of them."
        for note in prepare_importance(self.importance).notes():
            caption += f" {text(note)}."
        if self.how_to_freeze is not None:
            command = shlex.join(["workbench", *self.how_to_freeze.words])
            caption += f" {text(self.how_to_freeze.lead)}: <code>{text(command)}</code>"
        return self._figure("importance", caption, importance=self.importance)

    def _figure(
        self,
        kind: str,
        caption: str,
        *,
        name: str | None = None,
        width: int = WIDTH_PX,
        **options: object,
    ) -> str:
        place = f"plot-{name or kind}"
        try:
            figure = spec_of(FIGURES[kind](self.run, **options))
            title = figure["layout"].pop("title")["text"]  # the page has headings and captions
            drawn = figure_svg(figure, width=width, hover=self.hover)
        except Exception as error:
            return _not_drawn(kind, error)
        return (
            '<figure><div class="scroll" tabindex="0">'  # it scrolls sideways, also by keyboard
            f'<div class="plot" id="{place}" role="img" aria-label="{text(title)}" '
            f'style="min-width: {_LEAST_PART * width:.0f}px; max-width: {1.2 * width:.0f}px">'
            f"{drawn}</div></div><figcaption>{caption}</figcaption></figure>"
        )


def _not_drawn(kind: str, error: Exception) -> str:
    """Log why a figure could not be drawn, and return the text in its place."""
    logger.error("the figure %s could not be drawn", kind, exc_info=error)
    reason = f"{type(error).__name__}: {error}"
    return f'<p class="notice">The figure {text(kind)} could not be drawn: {text(reason)}</p>'
