"""How a page that draws with plotly is watched.

The last step of its first curve, whenever it has drawn.
"""

from __future__ import annotations

import time
from typing import Any

WATCH = """
window.drawn = [];
setInterval(() => {
  for (const chart of document.querySelectorAll(".js-plotly-plot")) {
    const title = chart.layout?.xaxis?.title?.text;
    if (chart.watched || !chart.on || title !== "Step") continue;
    chart.watched = true;
    const note = () => {
      const steps = chart.data?.[0]?.x;
      if (!steps?.length) return;
      const last = steps[steps.length - 1];
      window.numCurves = chart.data.length;
      requestAnimationFrame(() => window.drawn.push([last, Date.now() / 1000]));
    };
    chart.on("plotly_afterplot", note);
    note();
  }
}, 20);
"""


def drawn_after_s(page: Any, start_s: float, most_s: float) -> float:
    """Wait for the first drawing.

    Return the seconds that it came after `start_s`, infinite if it did not.
    """
    while time.time() < start_s + most_s:
        page.wait_for_timeout(200)
        drawn = page.evaluate("window.drawn")
        if drawn:
            return drawn[0][1] - start_s
    return float("inf")
