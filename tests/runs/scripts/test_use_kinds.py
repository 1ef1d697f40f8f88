"""For what a program uses a value, by the place where it ends."""

from __future__ import annotations

import ast

import pytest

from workbench.runs.scripts.script_options import walk
from workbench.runs.scripts.use_kinds import kind_of_call, values_used


def kinds_of(source: str) -> set[str]:
    """Return the kinds of uses of the name `x` in a source."""
    return {
        kind
        for node in walk(ast.parse(source))
        for kind, value, _ in values_used(node)
        if isinstance(value, ast.Name) and value.id == "x" and kind
    }


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("torch.optim.AdamW(net.parameters(), eps=x)", "optimizer"),
        ("make_it(lr=x)", "optimizer"),
        ("group['lr'] = x", "optimizer"),
        ("lr_scheduler.StepLR(optimizer, x)", "scheduler"),
        ("clip_grad_norm_(net.parameters(), x)", "clip"),
        ("FocalLoss(x)", "loss"),
        ("DataLoader(rows, x)", "batches"),
        ("transforms.ColorJitter(x)", "augmentation"),
        ("RandomForestClassifier(x)", "estimator"),
        ("nn.Dropout(x)", "layer"),
        ("os.path.join(root, x)", "path"),
        ("for epoch in range(1, x + 1): pass", "loop"),
        ("if step % x == 0: pass", "interval"),
        ("rows[:x]", "index"),
        ("y = 2 * x", "sum"),
        ("if x: pass", "switch"),
        ("if y < x: pass", "compared"),
        ("name = f'run-{x}'", "log"),
    ],
)
def test_a_use_is_known_by_its_place(source: str, kind: str) -> None:
    assert kind in kinds_of(source)


def test_a_value_belongs_to_the_call_that_is_nearest() -> None:
    assert kinds_of("print(nn.Dropout(x))") == {"layer"}


def test_numbers_may_be_converted_on_the_way() -> None:
    assert kinds_of("nn.Dropout(float(x))") >= {"layer"}


def test_a_function_of_any_other_name_says_nothing() -> None:
    assert kind_of_call("helper.frobnicate") == ""
