"""The formats of a model in a bundle, besides its weights. `deploy` writes them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from workbench.deploy.card import Card, Exported, read_card
from workbench.deploy.formats import ONNX, format_names
from workbench.experiment.actions import suggest
from workbench.experiment.automl import is_automl
from workbench.foundation.bundle_manifest import CARD
from workbench.foundation.errors import ArgumentError, RunError
from workbench.foundation.formatting import format_params
from workbench.runs.bundles.bundle_files import FILES_FOLDER
from workbench.store.history import Trial
from workbench.store.history.compression import describe_way, is_compression

if TYPE_CHECKING:
    from workbench.data import Datasets
    from workbench.experiment import Experiment
    from workbench.runs.stored_run import StoredRun
    from workbench.training.trained_model import WrittenModel

FLOWER = "flower"
_ABOUT_FLOWER = """
`flower/` contains the federation as an application for Flower. Its README.md says how to run it.
"""
_ABOUT_MODEL = """
`model.onnx` is the model, from rows as users have them to answers. `predict.py` predicts with it \
without an installed workbench. Its first line lists the packages that it needs:

    python predict.py ROWS

`card.json` describes its origin, its inputs and its measured scores.

The torch model of `wb.load_bundle(...)` takes the batches of `data.validation.batch(...)`, whose \
values are scaled and encoded, such as standardised columns. `model.onnx` does that itself: give \
it rows as they are in your table, not such a batch.
"""

_ABOUT_TOKENS = """
`model.onnx` takes tokens and a mask instead of texts, padded to the context of the training: the \
tokenizer is in `model/`.
"""
_ABOUT_LANGUAGE_MODEL = """
`workbench predict` and `wb.load_bundle(...).predict(...)` run it on texts, with transformers. \
`card.json` describes its origin, its input and its measured scores.
"""


def formats_of(experiment: Experiment, *, of_trial: bool = False) -> tuple[str, ...]:
    """Return the formats in which an exported bundle can hold the model, none where there are none.

    Args:
        experiment: The experiment of the run.
        of_trial: Whether one trial is exported, and not the best or the result of the run.
    """
    if is_automl(experiment):
        if of_trial:
            return ()
        return (ONNX,)
    if is_compression(experiment):
        return tuple(format_names())
    if not experiment.trains_model:
        return ()
    if experiment.federated is None:
        return (*format_names(),)
    return (*format_names(), FLOWER)


def check_result_format(experiment: Experiment, format: str | None, *, has_weights: bool) -> None:
    """Refuse a bundle in which the result of an AutoML run cannot be written.

    Args:
        experiment: The experiment of the run.
        format: None, or `onnx`.
        has_weights: Whether the bundle is to have weights.

    Raises:
        ArgumentError: If the format is not possible.
    """
    allowed = formats_of(experiment)
    if format is not None and format not in allowed:
        problem = f"the result of an AutoML run cannot be written as {format}"
        raise ArgumentError(problem, field="format", allowed=allowed)
    check_format(ONNX, has_weights=has_weights)


def check_format(format: str | None, *, has_weights: bool) -> None:
    """Refuse an unknown format, or one without weights.

    Args:
        format: The format, or None for none.
        has_weights: Whether the bundle is to have weights.

    Raises:
        ArgumentError: If the format is not possible.
    """
    allowed = [*format_names(), FLOWER]
    if format is not None and format not in allowed:
        raise ArgumentError(f"{format!r} is not a format", field="format", allowed=allowed)
    if format is not None and not has_weights:
        raise ArgumentError("a model cannot be written without its weights", field="format")


def add_format(run: StoredRun, trial: Trial, folder: Path, format: str) -> None:
    """Add the model of a trial to its bundle in a format. See `add_model` and `add_flower`."""
    about = _ABOUT_MODEL
    if format == FLOWER:
        add_flower(run, trial, folder)
        about = _ABOUT_FLOWER
    elif add_model(run, trial, folder, format).text_model is not None:
        about = _ABOUT_TOKENS
    with (folder / "README.md").open("a", encoding="utf-8") as readme:
        readme.write(about)


def add_flower(run: StoredRun, trial: Trial, folder: Path) -> None:
    """Add the federation of a trial to its bundle as an application for Flower.

    Args:
        run: The run.
        trial: The trial.
        folder: The bundle, which is complete otherwise.

    Raises:
        RunError: If the trial has no form for Flower.
    """
    if not run.experiment.trains_model or is_compression(run.experiment):
        raise RunError(
            "only a federated trial can be exported for Flower",
            next_step="Export it without --format flower.",
        )
    from workbench.deploy.flower.application import FOLDER, write_application
    from workbench.runs.bundles.bundle_loading import load_bundle
    from workbench.training.worker_task import TrialTask

    objects = None
    if run.experiment.payload_hashes():
        objects = run.store.artifacts_of(run.run_id).below("objects").url
    task = TrialTask(
        run.run_id,
        trial.number,
        0,
        run.experiment.model_dump_json(),
        params=trial.params,
        seed=trial.seed,
        objects=objects,
    )
    with load_bundle(folder).importing():
        write_application(folder / FOLDER, task, run.name)


def add_model(run: StoredRun, trial: Trial, folder: Path, format: str) -> Card:
    """Add the model of a trial to its bundle as ONNX, and in a further format.

    A bundle that answers texts still does: its card stays, and the graph of tokens is added to it.

    Args:
        run: The run.
        trial: The trial.
        folder: The bundle, which is complete otherwise.
        format: The format.

    Returns:
        The card of the bundle.

    Raises:
        RunError: If the trial has no model, or one that cannot be exported.
        MissingDependencyError: If a package is missing.
    """
    from workbench.deploy.distributions import needs

    experiment = run.experiment
    if is_automl(experiment):
        raise RunError(
            "a single trial of an AutoML run cannot be exported, because it does not contain the"
            " encoding of its data",
            next_step=suggest("export", run.run_id, lead="To export the result", to=str(run.name)),
        )
    if is_compression(experiment):
        return _add_compressed(run, trial, folder, format)
    if not experiment.trains_model:
        raise RunError(
            "the model of a train function or a command cannot be exported to ONNX, because only"
            " your code knows it",
            next_step=(
                "Export it without --format onnx. The bundle then has the files of the trial."
            ),
        )
    if trial.best_checkpoint is None:
        raise RunError(
            f"trial {trial.number} has no checkpoint, so there are no weights to export",
            next_step="Export another trial, or train it again.",
        )
    with needs("onnx"):
        from workbench.deploy.exported_bundle import add_trial
    from workbench.runs.bundles.bundle_loading import load_bundle

    bundle = load_bundle(folder)
    origin = _origin(run, trial, describe_model(experiment, trial), experiment, bundle.data)
    of_texts = read_card(folder) if (folder / CARD).exists() else None
    card = add_trial(folder, bundle.model, bundle.data, bundle.experiment, origin, format=format)
    if of_texts is None:
        return card
    from workbench.deploy.text_models import with_graph

    return with_graph(folder, of_texts, card)


def _add_compressed(run: StoredRun, trial: Trial, folder: Path, format: str) -> Card:
    """Add the model of a compression, which answers as the original model does."""
    from workbench.deploy.card import MODEL
    from workbench.deploy.exported_bundle import add_trial
    from workbench.deploy.onnx_export import OnnxModule

    assert run.experiment.train is not None
    base = run.experiment.train.load().base
    _, data = base.build()
    compressed = OnnxModule((folder / FILES_FOLDER / MODEL).read_bytes())
    trained = base.experiment.trained
    words = f"{trained.title if trained else 'a model'}: {describe_way(trial.params)}"
    origin = _origin(run, trial, words, base.experiment, data)
    return add_trial(folder, compressed, data, base.experiment, origin, format=format)


def add_language_model(run: StoredRun, trial: Trial, folder: Path, written: WrittenModel) -> str:
    """Add the card by which a language model is run, and return what is said about the model.

    Args:
        run: The run.
        trial: The trial.
        folder: The bundle, with the model in `model/`.
        written: The model that was written there.

    Raises:
        RunError: If the written model answers otherwise than the trained one.
    """
    from workbench.deploy.text_models import add_text_model

    experiment, data = run.experiment, written.datasets
    origin = _origin(run, trial, describe_model(experiment, trial), experiment, data)
    card = add_text_model(
        folder, written.model, data, experiment, params=trial.params, origin=origin
    )
    if card is None:
        return written.about
    return f"{written.about}\n{_ABOUT_LANGUAGE_MODEL}"


def _origin(
    run: StoredRun, trial: Trial, model: str, trained_by: Experiment, data: Datasets
) -> Exported:
    title = trained_by.data.title if trained_by.data else "no data"
    return Exported(
        name=run.name,
        run_id=run.run_id,
        trial=trial.number,
        model=model,
        trained_on=f"{title}, {len(data.train)} samples",
        task=data.task,
        values=trial.values,
        num_train_samples=len(data.train),
    )


def describe_model(experiment: Experiment, trial: Trial) -> str:
    """Return the model of a trial with its configuration, in words."""
    title = experiment.trained.title if experiment.trained else "a model"
    if not trial.params:
        return title
    return f"{title} ({format_params(trial.params)})"
