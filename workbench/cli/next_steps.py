"""The commands that a user may want next for a run, each with what it does."""

from __future__ import annotations

from workbench.cli.options import command_line
from workbench.history import History
from workbench.history.compression import BASE_RUN, BASE_TRIAL, base_of, is_compression
from workbench.history.failures import began_nothing
from workbench.runs.descriptions import first_traceback, has_nothing_left, how_to_extend

_LARGER_DROP = 0.02


def next_commands(run_id: str, state: str, history: History, *, has_report: bool = False) -> list[str]:
    """Return possible next commands, each with what it does."""
    has_best = history.best() is not None
    offers: list[tuple[str, str]] = []
    # A run keeps the experiment with which it was started, whatever its file says now.
    corrected = ("run a corrected file", command_line("sweep", "FILE"))
    if state in ("waiting", "running", "stopping"):
        offers = [("follow it", command_line("attach", run_id)), ("stop it", command_line("stop", run_id))]
        if state == "waiting":
            offers.append(("start it, if it does not start", command_line("resume", run_id)))
    elif state == "complete" and is_compression(history.experiment) and not has_best:
        base = base_of(history.experiment)
        again = {"trial": base[BASE_TRIAL], "limits": {"drop": _LARGER_DROP}}
        offers = [
            ("try more", command_line("extend", run_id, **(how_to_extend(history) or {"trials": 10}))),
            ("allow more to be lost", command_line("compress", base[BASE_RUN], **again)),
            ("export it as it is", command_line(
                "export", base[BASE_RUN], trial=base[BASE_TRIAL], to="best", format="onnx"
            )),
        ]  # fmt: skip
    elif state == "complete" and (more := how_to_extend(history)):
        offers = [("extend it", command_line("extend", run_id, **more))]
    elif state == "failed" and has_nothing_left(history):
        more = how_to_extend(history)
        extend = command_line("extend", run_id, **(more or {}))
        offers = [corrected] if more is None else [("try more once your code is fixed", extend), corrected]
        if began_nothing(history):
            offers = [("extend it", extend)]
    elif state in ("lost", "stopped", "failed"):
        offers = [("resume it", command_line("resume", run_id))]
        if history.reason == "failures":  # the same code fails again
            offers = [("resume it once your code is fixed", command_line("resume", run_id)), corrected]
    if (failed := first_traceback(history)) is not None:
        offers.append(("read the traceback", command_line("show", run_id, trial=failed.number)))
    if has_best and not has_report:
        offers += [
            ("write the report", command_line("report", run_id)),
            ("export the best", command_line("export", run_id, to="best")),
        ]
    width = max((len(label) for label, _ in offers), default=0)
    return [f"{label:<{width}}  {command}" for label, command in offers]
