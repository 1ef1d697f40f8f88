"""Documents are written as JSON that strict readers take."""

from __future__ import annotations

import json
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.foundation.python_values import plain


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


@settings(max_examples=50)
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_a_strict_reader_takes_any_document(document: object) -> None:
    json.loads(json.dumps(plain(document)), parse_constant=_refuse)


def test_numbers_that_are_not_finite_are_text() -> None:
    assert plain({"a": [math.nan, (math.inf, -math.inf)]}) == {
        "a": ["NaN", ["Infinity", "-Infinity"]]
    }
