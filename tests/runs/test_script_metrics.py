"""The metrics that a script prints, as its source shows."""

from __future__ import annotations

import pytest

from workbench.runs.script_metrics import metrics_of


@pytest.mark.parametrize(
    "line",
    [
        "print('Fold scores:', scores)",
        "print(f'fold accuracy: {accs}')\nfor acc in accs: pass",
        "losses = []\nprint('loss:', losses)",
        "kept = cross_val_score(model, x, y)\nprint('accuracy:', kept)",
        "print('accuracy:', [round(x, 2) for x in kept])",
        "print(f'loss: {history[1:]}')",
    ],
)
def test_what_holds_several_values_is_not_a_metric(line: str) -> None:
    assert metrics_of(line) == []
    assert metrics_of(f"{line}\nprint('Mean accuracy: %.3f' % mean)") == ["Mean_accuracy"]


def test_the_mean_of_the_folds_comes_before_the_value_of_one() -> None:
    source = (
        "for number, (train, held_out) in enumerate(folds.split(x)):\n"
        "    print(f'fold {number}: accuracy={accuracy:.3f}')\n"
        "print('mean accuracy:', np.mean(scores))\n"
    )
    assert metrics_of(source) == ["mean_accuracy", "accuracy"]
    assert metrics_of("print(f'Fold {k}: acc {a:.3f}')\nprint('CV accuracy: %.3f' % m)") == [
        "accuracy",
        "acc",
    ]


def test_a_number_with_a_format_comes_before_what_may_be_anything() -> None:
    assert metrics_of("print('score:', found)\nprint(f'error: {rate:.4f}')") == ["error", "score"]
    assert metrics_of("print(f'loss: {loss:.3f} val_loss: {other}')") == ["val_loss", "loss"]
