from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from workbench.experiment.yaml_file import read_yaml, read_yaml_file
from workbench.foundation.errors import ExperimentError


def doubled(first: str, form: str) -> str:
    """Return a text of 30 lines that stands for more than 10 ** 30 values."""
    lines = [f"a0: &a0 {first}"]
    lines += [f"a{index + 1}: &a{index + 1} " + form.format(f"*a{index}") for index in range(30)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        doubled("[x]", "[{0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}]"),
        doubled("{k: 1}", "{{<<: [" + ", ".join(["{0}"] * 10) + "]}}"),
    ],
    ids=["lists", "merged keys"],
)
def test_few_lines_that_mean_billions_are_refused_before_they_are_built(text: str) -> None:
    with pytest.raises(ExperimentError, match=r"at most 100,000\. Use fewer references") as caught:
        read_yaml(text, source="a.yaml")
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (
            "a: 1\nb: 2\na: 3",
            "a.yaml: the key a is in line 1 and again in line 3. Keep one of them.",
        ),
        ('x:\n  lr: 1\n  "lr": 2', "the key lr is in line 2 and again in line 3"),
        ("a: &a {k: 1}\nb: {<<: *a, <<: *a}", "the key << is in line 2"),
        ("a: &a [*a]", "the value that starts in line 1 contains itself"),
        ("a:\n\tb: 1", "Indent with spaces"),
    ],
)
def test_what_is_there_twice_or_holds_itself_is_refused_in_our_words(text: str, part: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        read_yaml(text, source="a.yaml")
    assert part in str(caught.value)
    assert "ruamel" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_ordinary_references_mean_what_they_refer_to() -> None:
    text = "rate: &rate {low: 1, high: 2}\nlr: *rate\n"
    text += "other: {<<: *rate, low: 0}\nlast: {<<: [*rate, {log: true}]}"
    rate: dict[str, Any] = {"low": 1, "high": 2}
    assert read_yaml(text) == {
        "rate": rate,
        "lr": rate,
        "other": {"low": 0, "high": 2},
        "last": {**rate, "log": True},
    }


def test_half_a_mapping_is_refused_in_one_line_with_both_places() -> None:
    with pytest.raises(ExperimentError) as refused:
        read_yaml("search:\n  lr: {low: 1e-3, high: 0.3\nbudget: {trials: 2}\n", source="half.yaml")
    assert str(refused.value) == (
        "half.yaml is not valid YAML: expected ',' or '}', but there is ':' (line 3, column 7), "
        "in the mapping that begins with '{' (line 2, column 7). Close the mapping with }, or "
        "separate its keys with commas."
    )


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("a: [1, 2", "Close the list with ]"),
        ("search: {lr: [1, 2}}", "Close the list with ]"),
        ("a: {b: 1}}", "This } closes nothing."),
        ("a: [1]]", "This ] closes nothing."),
        ('a: "x', "Close the quote."),
        ("a: b: c", "in quotes"),
        ("a: @y", "Put the value in quotes."),
        ("a: *.csv", "begins with * in quotes"),
        ("a: !x 1", "begins with ! in quotes"),
        ("a: 1\nb\nc: 2", "Write a colon and a space after the key."),
        ("a:\n  b: 1\n c: 2", "Indent what belongs together equally."),
        ("a: - b", "Begin the list in a new line"),
        ('a: "C:\\data"', "Use single quotes"),
        ("a: 1\n---\nb: 2", "to a file each"),
    ],
)
def test_wrong_yaml_says_what_to_do_without_words_of_the_grammar(text: str, step: str) -> None:
    with pytest.raises(ExperimentError) as refused:
        read_yaml(text)
    message = str(refused.value)
    assert step in message
    for jargon in ("flow", "scalar", "block", "token", "stream", "parsing", "scanning"):
        assert jargon not in message


@pytest.mark.parametrize(("encoding", "name"), [("latin-1", "Latin-1"), ("utf-16", "UTF-16")])
def test_a_file_in_another_encoding_is_refused_with_its_name(
    tmp_path: Path, encoding: str, name: str
) -> None:
    path = tmp_path / "e.yaml"
    path.write_bytes("# gr\u00f6\u00dfe\nmodel: mlp\n".encode(encoding))
    with pytest.raises(
        ExperimentError, match=rf"line 1 is not UTF-8, it seems to be {name}.*Save it as UTF-8"
    ):
        read_yaml_file(path)
