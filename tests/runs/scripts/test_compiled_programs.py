"""Programs in C and C++: their options in every library, and the lines that they print."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.experiment import Experiment
from workbench.experiment.command import expand
from workbench.runs.scripts.compiled_programs import lines_of_compiled, options_of_compiled
from workbench.runs.scripts.first_experiment import experiment_for

PROGRAMS = {
    "gflags": (
        'DEFINE_double(lr, 0.05, "The rate.");\nDEFINE_int32(hidden, 64, "Units.");\n',
        ["--lr=0.5", "--hidden=32"],
    ),
    "absl": (
        'ABSL_FLAG(double, lr, 0.05, "The rate.");\nABSL_FLAG(int32_t, hidden, 64, "Units.");\n',
        ["--lr=0.5", "--hidden=32"],
    ),
    "cxxopts": (
        'options.add_options()("l,lr", "Rate", cxxopts::value<float>()->default_value("0.05"))\n'
        '  ("hidden", "Units", cxxopts::value<int>()->default_value("64"))("h,help", "");\n',
        ["--lr=0.5", "--hidden=32"],
    ),
    "Boost": (
        'd.add_options()("help,h", "x")("lr", po::value<double>(&l)->default_value(0.05), "rate")\n'
        '  ("hidden,n", po::value<int>()->default_value(64), "units");\n',
        ["--lr=0.5", "--hidden=32"],
    ),
    "CLI11": (
        'double lr = 0.05; int hidden{64};\napp.add_option("-l,--lr", lr, "Rate");\n'
        'app.add_option("--hidden", hidden, "Units")->check(CLI::PositiveNumber);\n',
        ["--lr", "0.5", "--hidden", "32"],
    ),
    "argparse": (
        'p.add_argument("--lr").help("rate").default_value(0.05f).scan<\'g\', float>();\n'
        "p.add_argument(\"--hidden\").default_value(64).scan<'i', int>();\n",
        ["--lr", "0.5", "--hidden", "32"],
    ),
    "by hand": (
        "float lr = 0.05; int hidden = 64;\n"
        'if (!strcmp(argv[i], "-lr")) lr = atof(argv[++i]);\n'
        'else if (!strcmp(argv[i], "-hidden")) hidden = atoi(argv[++i]);\n',
        ["-lr", "0.5", "-hidden", "32"],
    ),
    "a class of its own": (
        'auto lr = cmd.registerParameter("lr", "learning rate; default=0.05");\n'
        'auto units = cmd.registerParameter("hidden", "units; default=64");\n',
        ["-lr", "0.5", "-hidden", "32"],
    ),
}


@pytest.mark.parametrize("library", PROGRAMS)
def test_a_trial_passes_the_options_of_each_library(library: str, tmp_path: Path) -> None:
    source, passed = PROGRAMS[library]
    program = tmp_path / "train.cpp"
    program.write_text(f'{source}printf("epoch %d, val loss: %.4f\\n", epoch, loss);\n')
    found = experiment_for(program)
    experiment = Experiment.from_yaml(found.text)
    assert {name: type(option.default) for name, option in _by_name(source)} == {
        "lr": float,
        "hidden": int,
    }
    words = expand(experiment.command or "", {"lr": 0.5, "hidden": 32}, {"folder": "/trial"})
    assert words == ["./train", *passed]
    assert experiment.objectives[0].metric == "val_loss"
    assert "Compile the program first" in found.notes[0]


def _by_name(source: str) -> list[tuple[str, object]]:
    return [(option.name, option) for option in options_of_compiled(source)]


def test_options_and_lines_may_be_in_files_that_are_included(tmp_path: Path) -> None:
    (tmp_path / "args.h").write_text("struct Args { void parse(); };\n")
    (tmp_path / "args.cc").write_text('DEFINE_double(lr, 0.05, "");\n#include "report.h"\n')
    (tmp_path / "report.h").write_text('std::cout << "valid_acc=" << acc << std::endl;\n')
    (tmp_path / "train.cpp").write_text('#include <vector>\n#include "args.h"\nint main() {}\n')
    experiment = Experiment.from_yaml(experiment_for(tmp_path / "train.cpp").text)
    assert list(experiment.search.root) == ["lr"]
    assert experiment.objectives[0].metric == "valid_acc"
    assert experiment.objectives[0].goal == "maximize"


def test_comments_are_no_options_and_a_help_lists_choices() -> None:
    source = (
        '// DEFINE_double(old, 0.1, "");\n/* DEFINE_double(older, 0.1, ""); */\n'
        'DEFINE_string(host, "http://here", "");\n'
        'DEFINE_string(optimizer, "sgd", "sgd|adam");\nDEFINE_bool(nesterov, true, "");\n'
    )
    options = {option.name: option for option in options_of_compiled(source)}
    assert list(options) == ["host", "optimizer", "nesterov"]
    assert options["optimizer"].choices == ("sgd", "adam")
    assert options["nesterov"].default is True


def test_lines_of_streams_and_formats() -> None:
    source = (
        'std::cout << "#" << std::setw(3) << i << "\\tTest=" << error << std::endl;\n'
        'fprintf(stderr, "loss %5.3f " "acc %g%%\\n", loss, acc);\n'
    )
    assert [line for _, line in lines_of_compiled(source)] == [
        "#{:f}\tTest={:f}",
        "loss {:f} acc {:f}%",
    ]
