"""The rivals of the live view on the same curves, each as it comes and in the same browser.

None of them is stopped before a minute; what takes longer is told as such. What is counted and what
is not stands in each rival's file. Points that a rival never drew are not in its percentiles.
"""

from __future__ import annotations

import importlib.util
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks import live_figure_widget, live_optuna_dashboard, live_tensorboard
from tests.benchmarks.live_measure import lateness

RIVALS: dict[str, tuple[str, Any]] = {
    "plotly FigureWidget": ("plotly", live_figure_widget),
    "optuna-dashboard": ("optuna_dashboard", live_optuna_dashboard),
    "TensorBoard": ("tensorboard", live_tensorboard),
}
MAX_S = 60.0
NEVER = {"median_ms": math.inf, "p95_ms": math.inf}


def measure(
    browser: Any, live_trials: Sequence[int], size: tuple[int, int], report: Callable[[str], None]
) -> dict[str, Any]:
    """Measure every rival that is installed.

    Args:
        browser: A Chromium.
        live_trials: How many trials report at once, fewest first; no more where fewer are too many.
        size: Trials and steps of the finished run.
        report: Is told of each result.

    Returns:
        By rival: lateness by the number of trials, and the seconds to open the finished run.
    """
    results: dict[str, Any] = {}
    for name, (package, rival) in RIVALS.items():
        if importlib.util.find_spec(package) is None:
            report(f"{name}: not installed (pip install .[rivals])")
            continue
        results[name] = {"live": {}, "note": rival.NOTE}
        late = {}
        for num_trials in live_trials:
            late = NEVER if late is NEVER else _watch(rival, browser, num_trials)
            results[name]["live"][str(num_trials)] = late
            report(f"{name}, {num_trials} live trials: {late}")
        with tempfile.TemporaryDirectory(prefix="wb-rival-") as folder:
            results[name]["opened_s"] = rival.open_finished(Path(folder), browser, *size, MAX_S)
        report(f"{name}, {size[0]} x {size[1]} opened: {results[name]['opened_s']:.1f} s")
    return results


def _watch(rival: Any, browser: Any, num_trials: int) -> dict[str, float]:
    with (
        tempfile.TemporaryDirectory(prefix="wb-rival-") as folder,
        rival.reporting(Path(folder), browser, num_trials, MAX_S) as (page, written),
    ):
        drawn = _drawn(page, rival.ENOUGH)
        if len(drawn) < 2:
            return NEVER
        (_, first_s), (last, last_s) = drawn[0], drawn[-1]
        return lateness(
            [(step, at) for step, at in written() if step <= last and first_s <= at <= last_s],
            drawn,
        )


def _drawn(page: Any, enough: tuple[int, float]) -> list[tuple[int, float]]:
    """Return the last step of each drawing that has a new one, once there are enough over enough
    seconds.
    """
    num_drawn, over_s = enough
    until_s = time.monotonic() + MAX_S
    drawn: dict[int, float] = {}
    while time.monotonic() < until_s:
        page.wait_for_timeout(250)
        for step, at_s in page.evaluate("window.drawn"):
            drawn.setdefault(step, at_s)
        if len(drawn) >= num_drawn and max(drawn.values()) - min(drawn.values()) >= over_s:
            break
    return sorted(drawn.items())


def print_table(report: dict[str, Any]) -> None:
    """Print what the rivals took, and how many times as long as ours that is."""
    print("rivals: metric written -> drawn, median (95 %)")
    size, opened = next(iter(report["opened"].items()))
    for name, result in report["rivals"].items():
        print(f"  {name}: {result['note']}")
        for num_trials, late in result["live"].items():
            ratio = late["median_ms"] / report["live"][num_trials]["median_ms"]
            print(
                f"    {num_trials:>5} live trials  {_long(late['median_ms'] / 1000):>9} "
                f"({_long(late['p95_ms'] / 1000)}), ours is {ratio:.1f}x faster"
            )
        ratio = result["opened_s"] / opened["complete_s"]
        print(f"    {size} opened  {_long(result['opened_s']):>9}, ours is {ratio:.1f}x faster")


def _long(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds <= MAX_S else f"> {MAX_S:.0f} s"
