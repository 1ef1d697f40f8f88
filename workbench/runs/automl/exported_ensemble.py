"""The result of an AutoML run as a bundle: encoders, models of all folds and weights in one graph.

`workbench.deploy` writes each part as ONNX, and `model_selection` chooses the models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.data.columns import Column
from workbench.data.encoders import ImageEncoder, TableEncoder, TextEncoder
from workbench.data.unusual_rows import PREDICTION
from workbench.deploy.packages import needs
from workbench.foundation.errors import RunError
from workbench.runs.automl.error_bands import ErrorBands
from workbench.runs.automl.given_data import take
from workbench.runs.automl.model_selection import ChosenModel
from workbench.runs.automl.preparation import HeldOut, LearningData
from workbench.runs.bundles.ensemble import write_ensemble_bundle

if TYPE_CHECKING:
    from workbench.deploy.card import Input
    from workbench.deploy.exported_model import Member
    from workbench.runs import Run

_MAX_SAMPLES = 5_000
_TEXT = "text"
"""The input of texts that came without a name."""


def write_ensemble(
    run: Run,
    chosen: ChosenModel,
    learning: LearningData,
    held_out: HeldOut,
    folder: Path,
    *,
    label: str,
    values: Mapping[str, float],
    force: bool,
    bands: ErrorBands | None = None,
) -> None:
    """Write the chosen model as a bundle that predicts without the workbench.

    Args:
        run: The run.
        chosen: The model.
        learning: The data that it learnt from, encoded.
        held_out: The test part, on which the graph is compared with the model.
        folder: A folder that is empty or does not exist.
        label: The model, in words.
        values: Scores by name, such as test_accuracy.
        force: Write into a folder that is not empty.
        bands: What the quantiles of each row are computed from, or None if none are wanted.

    Raises:
        RunError: If it cannot be exported, or the folder is not empty or cannot be written.
        MissingDependencyError: If a package is not installed.
    """
    with needs("onnx"):
        from workbench.deploy.exported_bundle import Exported, output_of, write
        from workbench.deploy.exported_model import Member, Quantiles, build
    members, examples = _members(chosen, learning, held_out)
    samples = take(held_out.samples, np.arange(min(len(held_out.targets), _MAX_SAMPLES)))
    interpreter = chosen.interpreter
    sizes = None
    if interpreter.kind == "texts":
        inputs, columns = _text_inputs(interpreter.text_columns, samples)
    else:
        read_by = [member for member, _ in members]
        if (
            bands is not None
            and bands.trees is not None
            and isinstance(bands.encoder, TableEncoder)
        ):
            read_by.append(sizes := Member(bands.trees, columns=bands.encoder.columns))
        inputs, columns = _inputs(read_by, samples)
    terms = _terms([member for member, _ in members])
    labels = tuple(map(str, interpreter.labels))
    output = output_of(interpreter.task, (learning.num_outputs,), labels, None)
    if interpreter.target_name is not None:
        output = output.model_copy(update={"targets": (interpreter.target_name,)})
    quantiles = None
    if bands is not None:
        from workbench.models.size_trees import MAX_FACTOR

        levels = held_out.quantiles
        quantiles = Quantiles(bands.places, bands.sizes, bands.steps(levels), MAX_FACTOR, sizes)
        names = tuple(f"{interpreter.target_name or 'prediction'} {level:g}" for level in levels)
        output = output.model_copy(update={"shape": (len(levels),), "targets": names})
    inputs = tuple(
        taken.model_copy(update={"learned": held_out.ranges.get(taken.name)})
        if taken.kind == "number"
        else taken
        for taken in inputs
    )
    learned = held_out.ranges.get(PREDICTION)
    if interpreter.task == "classification":
        learned = None
    output = output.model_copy(
        update={
            "class_factors": chosen.decisions.factors,
            "class_costs": chosen.decisions.costs,
            "learned": learned,
        }
    )
    made = build(
        members,
        inputs,
        output,
        examples,
        terms=terms,
        temperature=chosen.decisions.temperature,
        curves=chosen.decisions.curves,
        quantiles=quantiles,
    )

    def expected(places: np.ndarray) -> np.ndarray:
        rows = take(samples, places)
        answers = chosen.outputs(rows)
        if bands is not None:
            return bands.quantiles(answers[:, 0], held_out.quantiles, rows)
        if output.kind == "classes":
            return answers
        return answers[:, 0]

    num_train = held_out.num_samples[0]
    origin = Exported(
        name=run.name,
        run_id=run.run_id,
        trial=None,
        model=label,
        trained_on=f"{run.name}, {num_train} samples",
        task=interpreter.task,
        values=values,
        num_train_samples=num_train,
    )
    used = [
        {
            "trial": candidate.trial,
            "family": candidate.family,
            "weight": weight,
            "params": candidate.params,
        }
        for candidate, weight in chosen.used
    ]
    write_ensemble_bundle(
        run.stored,
        folder,
        used=used,
        values=values,
        force=force,
        title=f"{run.name}: {label}",
        of=f"The result of the AutoML run `{run.run_id}`.",
        holds="the encoding of the columns, all models",
        write_model=lambda beside: write(
            beside,
            made,
            origin,
            inputs=inputs,
            output=output,
            samples=columns,
            expected=expected,
            split="test",
            terms=terms,
        ),
    )


def _members(
    chosen: ChosenModel, learning: LearningData, held_out: HeldOut
) -> tuple[list[tuple[Member, float]], list[Any]]:
    """Return the models of all folds with weights and conversions, and inputs of each."""
    from workbench.deploy.exported_model import Member

    if not chosen.used:
        raise RunError(
            "no model was ready in time, so there is nothing to export but the simplest guess",
            next_step="Extend the run, then export it again.",
        )
    members: list[tuple[Member, float]] = []
    examples = []
    for candidate, weight in chosen.used:
        for number, model in candidate.models.items():
            reader = chosen.interpreter.readers[number]
            member = Member(
                model,
                target_mean=reader.target_mean,
                target_scale=reader.target_scale,
                trend=reader.trend,
            )
            encoder = reader.encoder
            if isinstance(encoder, TableEncoder):
                member = replace(member, columns=encoder.columns, pairs=encoder.pairs)
            elif isinstance(encoder, ImageEncoder):
                member = replace(
                    member, mean=encoder.mean, scale=encoder.scale, image_shape=encoder.shape
                )
            else:
                assert isinstance(encoder, TextEncoder)
                member = replace(member, texts=encoder)
            members.append((member, weight / len(candidate.models)))
            examples.append(_example(number, learning, held_out))
    return members, examples


def _example(number: int, learning: LearningData, held_out: HeldOut) -> np.ndarray:
    """Return some inputs of the models of a fold, or of those of all rows after the last fold."""
    if number == len(learning.folds) and held_out.all_rows is not None:
        return held_out.all_rows.inputs[:7]
    return learning.folds[number].train_inputs[:7]


def _terms(members: Sequence[Member]) -> tuple[str, ...]:
    """Return the terms that any of the encoders weights."""
    encoders = {id(member.texts): member.texts for member in members if member.texts is not None}
    terms_of_all = (
        term for encoder in encoders.values() for terms, _ in encoder.weights() for term in terms
    )
    return tuple(dict.fromkeys(terms_of_all))


def _text_inputs(
    names: Sequence[str], samples: np.ndarray
) -> tuple[tuple[Input, ...], dict[str, Any]]:
    """Return an input for each column of texts, and the samples by input."""
    from workbench.deploy.card import Input
    from workbench.deploy.exported_bundle import example_in

    names = names or (_TEXT,)
    # Samples are the texts of all columns, joined by line breaks, and only the counts of their
    # terms matter.
    parts = [[*text.split("\n", len(names) - 1), *[""] * len(names)] for text in map(str, samples)]
    columns = {
        name: np.array([texts[place] for texts in parts], dtype=object)
        for place, name in enumerate(names)
    }
    inputs = tuple(
        Input(name=name, kind="text", dtype="string", has_missing=True, example=example_in(values))
        for name, values in columns.items()
    )
    return inputs, columns


def _inputs(members: Sequence[Member], samples: Any) -> tuple[tuple[Input, ...], dict[str, Any]]:
    """Return what the graph takes, and the samples by input."""
    from workbench.deploy.card import Input
    from workbench.deploy.exported_bundle import example_in
    from workbench.deploy.table_graph import input_of

    if members[0].image_shape is not None:
        values = np.asarray(samples)
        shape = tuple(members[0].image_shape)
        example = example_in(values)
        return (
            Input(name="inputs", kind="array", shape=shape, dtype="float32", example=example),
        ), {"inputs": values}
    # An encoder omits columns that are constant in its fold, and counts the categories of that
    # fold.
    learnt: dict[str, list[Column]] = {}
    for member in members:
        for column in member.columns:
            learnt.setdefault(column.name, []).append(column)
    given = {str(name): samples[name].to_numpy() for name in samples.columns}
    inputs = []
    for name, columns in learnt.items():
        all_of_them = [input_of(column, example_in(given[name])) for column in columns]
        known = dict.fromkeys(
            text for column_input in all_of_them for text in column_input.categories
        )
        has_missing = any(column_input.has_missing for column_input in all_of_them)
        update = {"categories": tuple(known), "has_missing": has_missing}
        inputs.append(all_of_them[0].model_copy(update=update))
    return tuple(inputs), {column_input.name: given[column_input.name] for column_input in inputs}
