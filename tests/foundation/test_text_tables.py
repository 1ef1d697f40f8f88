from __future__ import annotations

import pytest

from workbench.foundation.text_tables import absent_columns


@pytest.mark.parametrize(
    ("absent", "named"),
    [
        ("a", "there is no column 'a'; needed: a, b, c, d, e, f, g."),
        ("bd", "there are no columns 'b' and 'd'; needed: a, b"),
        ("abd", "there are no columns 'a', 'b' and 'd'; needed"),
        ("abcde", "there are no columns 'a', 'b', 'c', 'd' and 'e'; needed"),
        ("abcdefg", "there are no columns 'a', 'b', 'c', 'd', 'e' and 2 more; needed"),
    ],
)
def test_the_columns_that_a_table_lacks_are_named_with_those_needed(
    absent: str, named: str
) -> None:
    assert str(absent_columns(absent, "abcdefg")).startswith(named)
