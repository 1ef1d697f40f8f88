from __future__ import annotations

from tests.builders.report_pages import report_html
from tests.runs.plots.test_report import Outline
from workbench.runs.plots.figures import FIGURES


def test_a_figure_that_fails_is_named_and_the_rest_of_the_report_stands(
    recorded_experiment, recorded_events, monkeypatch, caplog
):
    def fail(run, **options):
        raise OverflowError("cannot convert <infinity> to integer")

    monkeypatch.setitem(FIGURES, "slice", fail)
    page = report_html(recorded_experiment, recorded_events, importance={}, run_id="r-7")
    outline = Outline(page)
    assert "plot-slice" not in outline.places
    assert "plot-parallel" in outline.places
    assert (
        "The figure slice could not be drawn: OverflowError: cannot convert &lt;infinity&gt;"
        in page
    )
    assert outline.headings[-1] == "Environment"
    assert "the figure slice could not be drawn" in caplog.text
    assert "Traceback" in caplog.text
