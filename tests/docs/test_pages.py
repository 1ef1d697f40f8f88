"""All code in the README and the documentation is carried out, and everything that they name
exists.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import workbench as wb
from tests.benchmarks.exchange_tables import PAGE, with_tables
from tests.docs.code_blocks import (
    ROOT,
    RUN_MODES,
    blocks_of,
    carry_out,
    check_command,
    commands_of,
    needs_ray,
    run_command,
    runs_commands,
)
from workbench.cli.entry import group
from workbench.experiment import Experiment

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if "_build" not in page.parts]
LINKED = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", ROOT / "CHANGELOG.md"]
QUICK = {"README.md"}
SECTIONS = ("training", "plan", "budget", "early_stop", "confirm", "resources")


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def pages(with_ray: bool) -> list[object]:
    chosen = [page for page in PAGES if any(blocks_of(page)) and needs_ray(page) == with_ray]
    marks = [pytest.mark.ray] if with_ray else []
    return [
        pytest.param(
            page, id=named(page), marks=[*marks, *([pytest.mark.slow] if is_slow(page) else [])]
        )
        for page in chosen
    ]


def is_slow(page: Path) -> bool:
    return (needs_ray(page) or runs_commands(page)) and page.name not in QUICK


def ends_the_head(page: Path) -> bool:
    return any(
        block.mode == "run" and "workbench shutdown" in block.code for block in blocks_of(page)
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory of a reader, with a store of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("WORKBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WORKBENCH_STORE", str(tmp_path / "store.sqlite"))
    monkeypatch.setenv("WORKBENCH_SETTINGS", str(tmp_path / "settings.yaml"))
    (tmp_path / "settings.yaml").write_text("alerts: []\n", encoding="utf-8")
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


def test_the_tables_on_slow_links_are_those_of_the_stored_benchmark() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert with_tables(text) == text, "run `python -m tests.benchmarks.exchange_tables`"


@pytest.mark.parametrize("page", [page for page in PAGES if is_slow(page)], ids=named)
def test_the_code_of_a_slow_page_is_valid(page: Path, folder: Path) -> None:
    carry_out(page, folder, is_dry=True)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_command_of_a_page_is_run_or_has_a_reason_why_not(page: Path) -> None:
    for block in blocks_of(page):
        if block.language == "console":
            assert block.mode in RUN_MODES or (block.mode == "skip" and block.reason), (
                f"{named(page)}:{block.line}: write <!-- test: run --> above the block, or "
                "<!-- test: skip: needs a GPU -->"
            )


@pytest.mark.parametrize("page", pages(with_ray=False))
def test_the_code_of_a_page_works(page: Path, folder: Path) -> None:
    carry_out(page, folder)


@pytest.mark.slow
@pytest.mark.parametrize("page", pages(with_ray=True))
def test_the_code_of_a_page_that_starts_runs_works(
    page: Path, ray_head: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if ends_the_head(page):  # it starts its own: other tests need the head of the session
        try:
            carry_out(page, folder)
        finally:
            run_command(["workbench", "shutdown"])
        return
    monkeypatch.setenv("WORKBENCH_HOME", str(ray_head))
    carry_out(page, folder)


def test_every_example_of_a_command_is_one_that_the_command_takes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_ARTIFACTS", "s3://bucket/runs")  # an option that a team sets once
    helps = [command.help or "" for _, command in _commands(group)]
    examples = [text.split("Example:\n")[1] for text in helps if "Example:\n" in text]
    assert len(examples) > 20
    for text in examples:
        for words in commands_of(text.replace("\\\n", " ")):
            if words[-1] != "..." and ">" not in words:
                check_command(words, folder)


def _commands(within: object) -> Iterator[tuple[str, object]]:
    for name in within.list_commands(None):
        command = within.get_command(None, name)
        yield name, command
        if hasattr(command, "list_commands"):
            yield from _commands(command)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_what_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    code = [*re.findall(r"`([^`\n]+)`", text), *(block.code for block in blocks_of(page))]
    for snippet in code:
        assert set(re.findall(r"\bwb\.(\w+)", snippet)) <= set(wb.__all__)
        for command in re.findall(r"(?<!import )\bworkbench ([a-z][a-z-]+)\b", snippet):
            assert command in group.list_commands(None), snippet
        for section, field in re.findall(
            rf"(?<!workbench\.)\b({'|'.join(SECTIONS)})\.(\w+)", snippet
        ):
            assert field in Experiment.model_fields[section].annotation.model_fields, snippet
        for path in re.findall(
            r"(?<![\w/])(?:tests|notebooks|search_spaces|workbench)/[\w/.]+", snippet
        ):
            assert (ROOT / path.rstrip(".")).exists(), path


@pytest.mark.parametrize("page", LINKED, ids=named)
def test_links_of_a_file_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        if anchor:
            heads = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {
                re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads
            }, link


def test_the_readme_can_be_read_in_a_few_minutes() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 750
