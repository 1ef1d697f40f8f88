"""The code on the pages of the documentation: found, and carried out as its language demands."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from workbench.cli.entry import group
from workbench.experiment import Experiment
from workbench.experiment.yaml_file import read_yaml
from workbench.store.alerts.settings import Settings
from workbench.tiers.placement.tiers_file import Place, TiersFile

ROOT = Path(__file__).parents[2]
OTHER_PROGRAMS = {
    "cat",
    "cd",
    "chmod",
    "createdb",
    "curl",
    "export",
    "git",
    "jupyter",
    "kill",
    "ln",
    "ls",
    "make",
    "pip",
    "python",
    "python3",
    "ray",
    "sky",
    "torchrun",
}
RUN_MODES = ("run", "shell", "background")
# What a part of an experiment is completed with, to see whether it is one.
WHOLE = {
    "model": "mlp",
    "data": "digits",
    "objectives": [{"metric": "val_accuracy", "goal": "maximize"}],
}

_BLOCK = re.compile(
    r"^(?:<!-- test: (?P<mode>\w+)(?:: (?P<reason>[^\n]+?))? -->\n)?"
    r"```(?:\{code-block\} ?)?(?P<language>\w+)\n(?::caption:"
    r" (?P<file>\S+)\n\n)?(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """One block of code.

    Attributes:
        language: What follows the fence.
        code: Its lines.
        file: The file that a reader is asked to write it to, if any.
        mode: `run` for commands that are run, `shell` for a block that bash runs as a whole,
            `background` for a command that runs until the page ends, `skip` for commands that only
            have their syntax checked, `compile` for Python that needs more than the page, and
            `file` for YAML that is written to its file but is not an experiment.
        reason: Why a block is skipped or only compiled: `<!-- test: skip: needs a GPU -->`. For
            `run`, an exit code other than 0: `<!-- test: run: exit code 5 -->`. For `background`,
            the text that the command prints when it is ready.
        line: The line on which its code starts.
    """

    language: str
    code: str
    file: str | None
    mode: str | None
    reason: str | None
    line: int


def blocks_of(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page, in their order."""
    text = page.read_text(encoding="utf-8")
    for block in _BLOCK.finditer(text):
        line = text.count("\n", 0, block.start("code")) + 1
        yield Block(
            block["language"], block["code"], block["file"], block["mode"], block["reason"], line
        )


def needs_ray(page: Path) -> bool:
    """Return whether carrying out a page starts a run."""
    return any(
        (
            block.language == "python"
            and block.mode is None
            and re.search(r"wb\.(sweep|advise|automl)\(", block.code)
        )
        or (block.mode == "run" and re.search(r"workbench (sweep|automl|advise) ", block.code))
        for block in blocks_of(page)
    )


def runs_commands(page: Path) -> bool:
    """Return whether a page has commands that are run."""
    return any(block.mode in RUN_MODES for block in blocks_of(page))


def carry_out(page: Path, folder: Path, is_dry: bool = False) -> dict[int, str]:
    """Do what a page shows, as a reader would.

    Args:
        page: The page.
        folder: An empty folder that is the working directory.
        is_dry: Only write the files and check the syntax. No Python and no command is run.

    Returns:
        What each block printed, by its line.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    printed: dict[int, str] = {}
    with contextlib.ExitStack() as until_the_end:
        for block in blocks_of(page):
            if block.file is not None:
                (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
                (folder / block.file).write_text(block.code, encoding="utf-8")
            if block.language == "python":
                code = compile("\n" * (block.line - 1) + block.code, page, "exec")
                if block.mode is None and block.file is None and not is_dry:
                    with contextlib.redirect_stdout(io.StringIO()) as text:
                        exec(code, names)
                    printed[block.line] = text.getvalue()
            elif block.language == "yaml" and block.mode != "file":
                check_yaml(block.code)
            elif block.language == "toml":
                check_entry_points(tomllib.loads(block.code))
            elif block.language == "console":
                for words in commands_of(block.code):
                    check_command(words, folder)
                if not is_dry:
                    printed[block.line] = run_block(block, until_the_end)
    return printed


def run_block(block: Block, until_the_end: contextlib.ExitStack) -> str:
    """Run the commands of a block as its mode says, and return what they print."""
    commands = commands_of(block.code)
    if block.mode == "run":
        codes = re.fullmatch(r"exit code (\d+)", block.reason or "exit code 0")
        assert codes is not None, block.reason
        return "".join(
            run_command(words, int(codes[1]) if words == commands[-1] else 0) for words in commands
        )
    if block.mode == "shell":
        return run_script(block.code)
    if block.mode == "background":
        [words] = commands
        assert block.reason, "what does the command print when it is ready?"
        until_the_end.enter_context(running(words, block.reason))
    return ""


def commands_of(code: str) -> list[list[str]]:
    """Return the commands of a block, as words, without comments, variables and `&`."""
    lines = code.replace("\\\n", " ").splitlines()
    commands = [shlex.split(line, comments=True) for line in lines if not re.match(r"\w+=", line)]
    return [words[:-1] if words[-1] == "&" else words for words in commands if words]


def check_yaml(code: str) -> None:
    """Check settings, a file of tiers, an experiment, or a part of one."""
    document = read_yaml(code)
    if "tiers" in document:
        TiersFile.model_validate(document)
        return
    if "place" in document:
        Place.model_validate(document["place"])
        return
    if "sinks" in document:
        Settings.model_validate(document)
        return
    whole = {**WHOLE, **document}
    if "train" in document or "command" in document:
        whole = {
            key: value
            for key, value in whole.items()
            if key not in ("model", "data") or key in document
        }
    Experiment(**whole)


def check_entry_points(document: dict[str, Any]) -> None:
    """Check that the groups of entry points are read somewhere."""
    sources = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "workbench").rglob("*.py")
    )
    for group_name in document["project"]["entry-points"]:
        assert f'group="{group_name}"' in sources


def check_command(words: list[str], folder: Path) -> None:
    """Check a command against the command line.

    Files that it names and nobody wrote are made up.
    """
    program, *arguments = [word for word in words if word != "sudo"]
    if program == "make":
        assert re.search(
            rf"^{arguments[0]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
        )
    if program != "workbench":
        assert program in OTHER_PROGRAMS, words
        return
    for before, word in pairwise(["", *arguments]):
        is_written = before == "--to"
        is_file = re.fullmatch(r"[\w/.-]+\.(yaml|csv)", word) is not None
        if is_file and not is_written and not (folder / word).exists():
            (folder / word).parent.mkdir(parents=True, exist_ok=True)
            (folder / word).touch()
    command: click.Command = group
    context: click.Context | None = None
    name = program
    while isinstance(command, click.Group):
        context = click.Context(command, info_name=name, parent=context)
        name, *arguments = arguments
        subcommand = command.get_command(context, name)
        assert subcommand is not None, words
        command = subcommand
    if arguments != ["--help"]:
        command.make_context(name, arguments, parent=context)


def python_command(words: list[str]) -> list[str]:
    """Return a command of the workbench, or `python FILE`, for the Python of this process."""
    return [sys.executable, *(words[1:] if words[0] == "python" else ["-m", *words])]


def run_command(words: list[str], exit_code: int = 0) -> str:
    """Run a command of the workbench, or `python FILE`, and return what it prints."""
    done = subprocess.run(
        python_command(words),
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == exit_code, f"{shlex.join(words)}\n{done.stdout}"
    return done.stdout


def run_script(code: str) -> str:
    """Run a block with bash, in which `workbench` and `python` are those of this process.

    Returns:
        What it prints.
    """
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", code],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PATH": programs},
    )
    assert done.returncode == 0, f"{code}\n{done.stdout}"
    return done.stdout


@contextlib.contextmanager
def running(words: list[str], ready: str) -> Iterator[None]:
    """Run a command in the background, from when it has printed a text until the context ends."""
    output = Path("background.txt")
    with output.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(python_command(words), stdout=file, stderr=subprocess.STDOUT)
    try:
        until_s = time.monotonic() + 120
        while ready not in output.read_text(encoding="utf-8"):
            assert process.poll() is None, output.read_text(encoding="utf-8")
            assert time.monotonic() < until_s, f"{shlex.join(words)} does not print {ready!r}"
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(timeout=120)
