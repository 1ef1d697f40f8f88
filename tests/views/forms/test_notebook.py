from __future__ import annotations

from typing import Any

import pytest

from workbench.foundation.errors import ExperimentError
from workbench.views.forms import Draft


def cell(code: str, namespace: dict[str, Any]) -> None:
    """Run code as a notebook does."""
    namespace.setdefault("__name__", "__main__")
    exec(code, namespace)


def drafted(namespace: dict[str, Any]) -> Draft:
    cell("def build(config): return config['width']", namespace)
    draft = Draft(namespace=namespace)
    draft.edit([("model", "build")])
    return draft


def test_a_function_of_a_cell_is_named_in_every_face_and_comes_along() -> None:
    draft = drafted({})
    assert draft.document["model"].startswith("embedded:build@")
    assert "model=build," in draft.python
    assert draft.problems == []
    assert draft.experiment.model is not None
    assert draft.experiment.model.load()({"width": 3}) == 3
    for text in (draft.yaml, draft.yaml.replace(draft.document["model"], "build")):
        draft.write_yaml(text)
        assert draft.yaml_problems == ()
    draft.write_python(draft.python.replace("seed", "seed"))
    assert draft.python_problems == ()
    assert draft.undo_label == "edit"


def test_a_cell_that_is_run_again_with_other_code_makes_a_new_version_and_says_so() -> None:
    namespace: dict[str, Any] = {}
    draft = drafted(namespace)
    first = draft.hash
    draft.follow_notebook()
    assert (draft.hash, draft.notes) == (first, [])

    cell("def build(config): return config['width'] + 1", namespace)
    draft.follow_notebook()
    assert draft.hash not in (None, first)
    assert draft.notes == [
        "build was redefined: the experiment uses the new version, with a new hash."
    ]
    assert draft.experiment.model is not None
    assert draft.experiment.model.load()({"width": 3}) == 4


def test_who_goes_back_to_an_older_version_stays_with_it() -> None:
    namespace: dict[str, Any] = {}
    draft = drafted(namespace)
    first = draft.hash
    cell("def build(config): return 0", namespace)
    draft.follow_notebook()
    draft.undo()
    draft.follow_notebook()
    assert draft.hash == first
    assert draft.experiment.model is not None
    assert draft.experiment.model.load()({"width": 3}) == 3
    assert "embedded:build@" in draft.python


def test_what_a_function_refers_to_makes_a_new_version_too() -> None:
    namespace: dict[str, Any] = {}
    cell("def width(): return 1\ndef build(config): return width()", namespace)
    draft = Draft(namespace=namespace)
    draft.edit([("model", "build")])
    first = draft.hash
    cell("def width(): return 2", namespace)
    draft.follow_notebook()
    assert draft.hash != first


def test_what_cannot_be_taken_along_is_refused_at_its_field() -> None:
    namespace: dict[str, Any] = {}
    cell("import threading\nlock = threading.Lock()\ndef build(config): return lock", namespace)
    draft = Draft(namespace=namespace)
    with pytest.raises(ExperimentError, match="cannot be sent to other processes") as refusal:
        draft.edit([("model", "build")])
    assert refusal.value.field == "model"
    assert draft.document["model"] == "mlp"


def test_names_of_the_zoo_are_never_those_of_the_notebook() -> None:
    namespace: dict[str, Any] = {}
    cell("def mlp(config): return 0", namespace)
    draft = Draft(namespace=namespace)
    draft.edit([("model", "mlp")])
    assert draft.document["model"] == "mlp"


def test_functions_and_classes_of_cells_are_offered() -> None:
    namespace: dict[str, Any] = {}
    cell(
        "import json\nfrom pathlib import Path\nclass Net: pass\ndef load(c): ...\n_x = 1\ny = 2",
        namespace,
    )
    assert Draft(namespace=namespace).notebook.names() == ["Net", "load"]


def test_a_name_is_found_as_soon_as_its_cell_has_run() -> None:
    namespace: dict[str, Any] = {}
    draft = Draft(namespace=namespace)
    draft.edit([("model", "build"), ("loss", "lossy")])
    problem = next(one for one in draft.problems if one.field == "model")
    assert "Run its cell first" in str(problem)
    draft.follow_notebook()
    assert draft.document["model"] == "build"

    cell("def build(config): ...\ndef lossy(outputs, targets): ...", namespace)
    draft.follow_notebook()
    assert draft.problems == []
    assert draft.document["model"].startswith("embedded:build@")
    assert draft.undo_label == "take build and lossy from the notebook"


def test_python_that_named_a_class_too_early_is_taken_when_its_cell_has_run() -> None:
    namespace: dict[str, Any] = {}
    draft = Draft(namespace=namespace)
    text = draft.python.replace('model="mlp"', "model=build")
    draft.write_python(text)
    assert "Run the cell" in str(draft.python_problems[0])
    heard: list[int] = []
    draft.listen(lambda: heard.append(draft.revision))
    draft.follow_notebook()
    assert heard == []
    cell("def build(config): ...", namespace)
    draft.follow_notebook()
    assert (draft.python, draft.python_problems) == (text, ())
    assert draft.document["model"].startswith("embedded:build@")


def test_a_name_of_the_notebook_is_taken_where_it_is_none_of_the_zoo_and_nowhere_else() -> None:
    namespace: dict[str, Any] = {}
    cell("def digits(config): ...", namespace)
    draft = Draft(namespace=namespace)
    draft.edit([("model", "digits")])
    assert draft.document["model"].startswith("embedded:digits@")
    assert draft.document["data"] == "digits"
    draft.edit([("data.path", 3)])
    assert not any("cell" in str(problem) for problem in draft.problems)


def test_a_class_of_a_cell_shows_what_it_reads_and_so_does_its_next_version() -> None:
    from ipykernel.compiler import XCachingCompiler

    compiler = XCachingCompiler()
    namespace: dict[str, Any] = {"__name__": "__main__"}

    def run_cell(default: int) -> None:
        code = (
            "class Net:\n"
            "    def __init__(self, config):\n"
            f"        self.width = config.get('width', {default})\n"
        )
        exec(compiler(code, compiler.cache(code), "exec"), namespace)

    run_cell(32)
    draft = Draft(namespace=namespace)
    draft.edit([("model", "Net")])
    assert draft.own_values() == {"model": {"width": 32}}
    run_cell(64)
    draft.follow_notebook()
    assert draft.own_values() == {"model": {"width": 64}}
