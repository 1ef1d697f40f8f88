"""Metrics in logs whose forms are those of public programs, compared with what a person reads.

Below each excerpt, `>` gives the metrics with their last values, `+` other names that may be read,
and `*` the names that can be the objective. The numbers are our own.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from workbench.training.programs.metric_names import objectives_in
from workbench.training.programs.printed_metrics import Lines, PrintedMetrics, may_have_metrics

LOGS = Path(__file__).with_name("logs")
ESCAPES = {r"\t": "\t", r"\r": "\r", r"\x1b": "\x1b", r"\x08": "\b"}


class Excerpt(NamedTuple):
    """A part of a log, and what a person reads in it."""

    name: str
    text: str
    metrics: dict[str, float]
    others: set[str]
    objectives: list[str]


def excerpts_in(file: str) -> list[Excerpt]:
    excerpts = []
    for block in re.split(r"^=== ", (LOGS / file).read_text(), flags=re.MULTILINE)[1:]:
        name, _, body = block.partition("\n")
        notes = dict.fromkeys(">+*", "")
        printed = []
        for line in body.splitlines():
            if line[:2] in ("> ", "+ ", "* "):
                notes[line[0]] += line[1:]
            else:
                printed.append(line)
        text = "\n".join(printed)
        for written, meant in ESCAPES.items():
            text = text.replace(written, meant)
        metrics = (item.rpartition("=") for item in notes[">"].split())
        excerpts.append(
            Excerpt(
                name,
                text,
                {metric: float(value) for metric, _, value in metrics},
                set(notes["+"].split()),
                notes["*"].replace("|", " ").split(),
            )
        )
    return excerpts


FILES = (
    "public_forms.txt",
    "other_forms.txt",
    "later_forms.txt",
    "newer_forms.txt",
    "further_forms.txt",
    "words_of_lines.txt",
)
EXCERPTS = [excerpt for file in FILES for excerpt in excerpts_in(file)]


def last_values(text: str, size: int = 50) -> dict[str, float]:
    """Return the last value of each name. The text arrives in pieces, as from a pipe."""
    data, lines, reader = text.encode(), Lines(may_have_metrics), PrintedMetrics()
    read = [line for at in range(0, len(data), size) for line in lines.feed(data[at : at + size])]
    values: dict[str, float] = {}
    for line in [*read, *lines.end()]:
        values |= reader.read(line)
    return values


@pytest.mark.parametrize("excerpt", EXCERPTS, ids=[excerpt.name for excerpt in EXCERPTS])
def test_a_log_is_read_as_a_person_reads_it(excerpt: Excerpt) -> None:
    read = last_values(excerpt.text)
    assert {name: read.get(name) for name in excerpt.metrics} == pytest.approx(excerpt.metrics)
    assert read.keys() - excerpt.metrics.keys() <= excerpt.others
    assert objectives_in(read)[:1] == [] or objectives_in(read)[0] in excerpt.objectives


def test_there_are_sixty_forms_and_each_has_an_objective_or_says_that_it_has_none() -> None:
    assert len({excerpt.name for excerpt in EXCERPTS}) >= 60
    with_objective = [excerpt for excerpt in EXCERPTS if objectives_in(last_values(excerpt.text))]
    assert {excerpt.name for excerpt in EXCERPTS if excerpt.objectives} == {
        excerpt.name for excerpt in with_objective
    }
