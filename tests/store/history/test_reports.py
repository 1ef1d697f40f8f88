from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from workbench.store.history.reports import NumberColumn, Reports, read_columns

numbers = (
    st.none() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False, allow_infinity=False)
)
reports = st.fixed_dictionaries(
    {"step": st.integers(0, 9)},
    optional={
        "attempt": st.integers(0, 3),
        "epoch": numbers,
        "parts_s": st.none(),
        "values": st.dictionaries(st.sampled_from("ab"), numbers, max_size=2),
    },
)


def assert_equal(columns: Mapping[str, NumberColumn], expected: Mapping[str, NumberColumn]) -> None:
    for name in {*columns, *expected}:
        if name not in columns or name not in expected:  # never a number
            assert not (columns.get(name) or expected[name]).is_known.any()
            continue
        np.testing.assert_array_equal(columns[name].values, expected[name].values)
        np.testing.assert_array_equal(columns[name].is_known, expected[name].is_known)


@given(st.lists(reports, min_size=1, max_size=20))
def test_reports_read_as_columns_are_those_read_one_by_one(written):
    columns = read_columns([json.dumps(report) for report in written])
    expected = Reports.of([{**report, "values": report.get("values") or {}} for report in written])
    assert columns is not None
    np.testing.assert_array_equal(columns.attempts, expected.attempts)
    assert_equal(columns.numbers, expected.numbers)
    assert_equal(columns.values, expected.values)


def test_reading_many_reports_does_not_import_pandas():
    program = """
import sys
from collections.abc import Mapping
from workbench.store.history.reports import read_columns
first, second = '{"step": 1, "values": {"loss": 1}}', '{"step": 2, "epoch": 0.5, "values": {}}'
assert read_columns([first, second])
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
