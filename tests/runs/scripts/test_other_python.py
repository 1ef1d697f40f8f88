"""Programs for another Python are read as well."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from workbench.experiment import Experiment
from workbench.runs.scripts.first_experiment import experiment_for
from workbench.runs.scripts.other_python import readable_source

PYTHON_2 = """import optparse
parser = optparse.OptionParser()
parser.add_option("-r", "--lr", default="0.1", type="float")
parser.add_option("-w", "--width", default="64", type="int")
opts = parser.parse_args()[0]
for epoch in xrange(3):
\tloss = train(opts.lr, opts.width)
\tif epoch % 2: print "epoch %d" % epoch,
\ttry: print >>log, epoch
\texcept IOError, e:
\t    raise ValueError, "full"
\tprint "val_loss: %.3f" % (
\t    loss)
print
"""


def test_a_program_for_python_2_is_read_and_named(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PYTHON_2.replace("\ttry: print >>log, epoch", "\ttry:\n\t    print >>log, 1"))
    first = experiment_for(script)
    experiment = Experiment.from_yaml(first.text)
    assert experiment.objectives[0].metric == "val_loss"
    assert {"lr", "width"} <= set(experiment.search.root)
    assert any("Python 2" in note for note in first.notes)


@pytest.mark.parametrize(
    ("line", "plain"),
    [
        ('print(f"a {d["k"]} b {d["l"]:.2f}")', "print(f\"a {d['k']} b {d['l']:.2f}\")"),
        ("print(f'{d['k']}', \"x\")", 'print(f\'{d["k"]}\', "x")'),
    ],
)
def test_an_f_string_may_have_its_own_quotes_in_its_braces(line: str, plain: str) -> None:
    assert ast.dump(ast.parse(readable_source(line))) == ast.dump(ast.parse(plain))


@pytest.mark.parametrize("text", ["lr = 0.1\n", "a b c\n", "printer = 1\n", ""])
def test_other_text_stays_as_it_is(text: str) -> None:
    assert readable_source(text) == text
