from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.foundation.errors import ExperimentError, UnknownNameError
from workbench.foundation.registry import Registry, load_object


def test_a_name_is_imported_only_when_it_is_asked_for() -> None:
    program = (
        "import sys; from workbench.foundation.registry import Registry; "
        "r = Registry('thing', {'j': 'json.tool:main'});"
        "assert 'json.tool' not in sys.modules; r.load('j'); assert 'json.tool' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(UnknownNameError) as refusal:
        Registry("model", {"mlp": "a:b", "convnet": "a:c"}).load("mpl", field="model")
    assert str(refusal.value) == "model: unknown model 'mpl'; allowed: mlp, convnet"


def test_a_name_of_another_tool_gets_a_hint() -> None:
    samplers = Registry("sampler", {"tpe": "a:b"}, hints={"bayes": "Use tpe."})
    with pytest.raises(UnknownNameError) as refusal:
        samplers.load("bayes")
    assert str(refusal.value) == "unknown sampler 'bayes'; allowed: tpe. Use tpe."


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("json", "allowed: package.module:name"),
        ("no_such_module:f", "cannot import 'no_such_module'"),
        ("json:no_such_name", "'json' has no 'no_such_name'"),
    ],
)
def test_a_wrong_reference_is_refused(reference: str, message: str) -> None:
    with pytest.raises(ExperimentError) as refusal:
        load_object(reference, field="train")
    assert str(refusal.value).startswith("train: ")
    assert message in str(refusal.value)


@pytest.fixture
def register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let another package register things, by name."""

    def write(**references: str) -> None:
        information = tmp_path / "other-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
        points = "".join(f"{name} = {reference}\n" for name, reference in references.items())
        (information / "entry_points.txt").write_text(f"[workbench.things]\n{points}")
        monkeypatch.syspath_prepend(str(tmp_path))

    return write


def test_a_package_adds_names_by_entry_points(register: Callable[..., None]) -> None:
    register(dumps="json:dumps")
    registry = Registry("thing", {}, group="workbench.things")
    assert registry.names() == ["dumps"]
    assert registry.load("dumps")([1]) == "[1]"
    with pytest.raises(ExperimentError, match="Uninstall one of the two"):
        Registry("thing", {"dumps": "pickle:dumps"}, group="workbench.things").names()


def test_an_object_of_another_package_has_what_is_needed(register: Callable[..., None]) -> None:
    register(dumps="json:dumps", unfinished="collections.abc:Sized")
    registry = Registry(
        "thing", {"built_in": "json:loads"}, group="workbench.things", needs=["pack"]
    )
    registry.load("built_in")
    with pytest.raises(ExperimentError, match="registered as the thing 'dumps', but has no pack"):
        registry.load("dumps", field="thing")
    with pytest.raises(ExperimentError, match="has no __len__, pack"):
        registry.load("unfinished")
