"""The result of an AutoML run as a bundle: encoders, models of all folds and weights in one graph.

`workbench.deploy` writes each part as ONNX, and `model_selection` chooses the models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.data.column_encoding import Column
from workbench.data.encoders import ImageEncoder, TableEncoder, TextEncoder
from workbench.data.unusual_rows import PREDICTION
from workbench.deploy.distributions import needs
from workbench.foundation.errors import RunError
from workbench.models.second_layer import SecondLayer
from workbench.runs.automl.given_data import take
from workbench.runs.automl.model_selection import ChosenModel
from workbench.runs.automl.preparation import HeldOut
from workbench.runs.automl.stored_model import StoredModel
from workbench.runs.bundles.ensemble import write_ensemble_bundle

if TYPE_CHECKING:
    from workbench.deploy.card import Input, Output
    from workbench.deploy.exported_model import Member, Quantiles
    from workbench.runs import Run

_MAX_SAMPLES = 5_000
_TEXT = "text"
"""The input of texts that came without a name."""


def write_ensemble(
    run: Run,
    model: StoredModel,
    held_out: HeldOut,
    folder: Path,
    *,
    label: str,
    force: bool,
) -> None:
    """Write the chosen model as a bundle that predicts without the workbench.

    Args:
        run: The run.
        model: The model.
        held_out: The test part, on which the graph is compared with the model.
        folder: A folder that is empty or does not exist.
        label: The model, in words.
        force: Write into a folder that is not empty.

    Raises:
        RunError: If it cannot be exported, or the folder is not empty or cannot be written.
        MissingDependencyError: If a package is not installed.
    """
    with needs("onnx"):
        from workbench.deploy.card import Exported
        from workbench.deploy.exported_bundle import write
        from workbench.deploy.exported_model import build
        from workbench.deploy.table_graph import input_of
    chosen, interpreter = model.chosen, model.chosen.interpreter
    members, examples = _members(model)
    read_by = [member for member, _ in members]
    sizes = _sizes_of_errors(model)
    if sizes is not None:
        read_by.append(sizes)
    samples = take(held_out.samples, np.arange(min(len(held_out.targets), _MAX_SAMPLES)))
    if interpreter.kind == "texts":
        inputs, columns = _text_inputs(interpreter.text_columns, samples)
    else:
        inputs, columns = _inputs(read_by, samples)
    if (offsets := chosen.offsets) is not None:
        known = [text for text in offsets.ranks if text is not None]
        groups = np.resize(np.array(known, dtype=object), len(samples))
        samples = samples.assign(**{offsets.name: groups})
        inputs += (input_of(offsets, known[0]),)
        columns[offsets.name] = groups
    inputs = tuple(
        taken.model_copy(update={"learned": held_out.ranges.get(taken.name)})
        if taken.kind == "number"
        else taken
        for taken in inputs
    )
    terms = _terms([member for member, _ in members])
    quantiles, error_size = _quantiles(model, sizes)
    output = _output(model, held_out, has_quantiles=quantiles is not None)
    if error_size is not None and model.bands is not None:
        output = output.model_copy(update={"errors": tuple(model.bands.errors.tolist())})
    made = build(
        members,
        inputs,
        output,
        examples,
        terms=terms,
        temperature=chosen.decisions.temperature if output.kind == "classes" else None,
        curves=chosen.decisions.curves,
        quantiles=quantiles,
        error_size=error_size,
        are_shares=interpreter.are_labels,
        second=_second_of(chosen),
        offsets=chosen.offsets,
    )

    def expected(places: np.ndarray) -> np.ndarray:
        rows = take(samples, places)
        answers = chosen.outputs(rows)
        if quantiles is not None and model.bands is not None:
            return model.bands.quantiles(answers[:, 0], model.quantiles, rows)
        if output.kind == "classes":
            return answers
        return answers if interpreter.target_names else answers[:, 0]

    num_train = held_out.num_samples[0]
    origin = Exported(
        name=run.name,
        run_id=run.run_id,
        trial=None,
        model=label,
        trained_on=f"{run.name}, {num_train} samples",
        task=interpreter.task,
        values=model.values,
        num_train_samples=num_train,
    )
    used = [
        {
            "trial": candidate.trial,
            "family": candidate.family,
            "weight": chosen.shown_weight(weight),
            "params": candidate.params,
        }
        for candidate, weight in chosen.used
    ]
    write_ensemble_bundle(
        run.stored,
        folder,
        used=used,
        values=model.values,
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
            names=() if offsets is None else (offsets.name,),
        ),
    )


def _sizes_of_errors(model: StoredModel) -> Member | None:
    """Return the trees that say how large the error of a row is, or None without any."""
    from workbench.deploy.exported_model import Member

    bands = model.bands
    if bands is None or bands.trees is None or not isinstance(bands.encoder, TableEncoder):
        return None
    return Member(bands.trees, columns=bands.encoder.columns)


def _quantiles(
    model: StoredModel, sizes: Member | None
) -> tuple[Quantiles | None, Quantiles | None]:
    """Return what follows from a prediction: the quantiles that were asked for, or its error.

    Both are None if the graph cannot compute them.
    """
    from workbench.deploy.exported_model import Quantiles
    from workbench.models.trees import MAX_FACTOR

    bands, levels = model.bands, model.quantiles
    if bands is None or (bands.trees is not None and sizes is None):
        return None, None
    follows = Quantiles(bands.places, bands.sizes, bands.steps(levels), MAX_FACTOR, sizes)
    return (follows, None) if levels else (None, follows)


def _output(model: StoredModel, held_out: HeldOut, *, has_quantiles: bool) -> Output:
    """Return what the graph answers."""
    from workbench.deploy.exported_bundle import output_of

    chosen, interpreter = model.chosen, model.chosen.interpreter
    labels = tuple(map(str, interpreter.labels))
    changes: dict[str, Any] = {
        "class_factors": chosen.decisions.factors,
        "class_costs": chosen.decisions.costs,
    }
    if interpreter.target_name is not None:
        changes["targets"] = interpreter.target_names or (interpreter.target_name,)
    if has_quantiles:
        name = interpreter.target_name or "prediction"
        changes["shape"] = (len(model.quantiles),)
        changes["targets"] = tuple(f"{name} {level:g}" for level in model.quantiles)
    if interpreter.task != "classification":
        changes["learned"] = held_out.ranges.get(PREDICTION)
    output = output_of(interpreter.task, (len(chosen.guess),), labels, None)
    return output.model_copy(update=changes)


def _members(model: StoredModel) -> tuple[list[tuple[Member, float]], list[Any]]:
    """Return the models of all folds with weights and conversions, and inputs of each."""
    from workbench.deploy.exported_model import Member

    chosen = model.chosen
    if not chosen.used:
        raise RunError(
            "no model was ready in time, so there is nothing to export but the simplest guess",
            next_step="Extend the run, then export it again.",
        )
    if any(candidate.family == "foundation" for candidate, _ in chosen.used):
        raise RunError(
            "a foundation model is part of the result, and such models cannot be exported",
            next_step="Start AutoML again without foundation_weights.",
        )
    members: list[tuple[Member, float]] = []
    examples = []
    for candidate, weight in chosen.used:
        for number, module in candidate.models.items():
            reader = chosen.interpreter.readers[number]
            member = Member(
                module,
                target_mean=reader.target_mean,
                target_scale=reader.target_scale,
                trend=reader.trend,
                is_log=reader.is_log,
            )
            encoder = reader.encoder
            if isinstance(encoder, TableEncoder):
                member = replace(
                    member,
                    columns=encoder.columns,
                    pairs=encoder.pairs,
                    table_texts=encoder.texts,
                )
            elif isinstance(encoder, ImageEncoder):
                # Pixels of files come with the channels first.
                shape = None if chosen.interpreter.are_files else encoder.shape
                member = replace(member, mean=encoder.mean, scale=encoder.scale, image_shape=shape)
            else:
                assert isinstance(encoder, TextEncoder)
                member = replace(member, texts=encoder)
            members.append((member, weight / len(candidate.models)))
            examples.append(model.examples[number])
    return members, examples


def _second_of(chosen: ChosenModel) -> tuple[SecondLayer, list[int]] | None:
    """Return the second layer, and the number of the candidate of each model."""
    if chosen.second is None:
        return None
    numbers = [
        number for number, (candidate, _) in enumerate(chosen.used) for _ in candidate.models
    ]
    return chosen.second, numbers


def _terms(members: Sequence[Member]) -> tuple[str, ...]:
    """Return the terms that any of the encoders weights."""
    encoders = {id(member.texts): member.texts for member in members if member.texts is not None}
    of_texts = (
        term for encoder in encoders.values() for terms, _ in encoder.weights() for term in terms
    )
    encodings = {id(texts): texts for member in members if (texts := member.table_texts)}
    of_tables = (
        term for texts in encodings.values() for block in texts.blocks for term in block.terms
    )
    return tuple(dict.fromkeys((*of_texts, *of_tables)))


def _text_inputs(
    names: Sequence[str], samples: np.ndarray
) -> tuple[tuple[Input, ...], dict[str, Any]]:
    """Return an input for each column of texts, and the samples by input."""
    names = names or (_TEXT,)
    # Samples are the texts of all columns, joined by line breaks, and only the counts of their
    # terms matter.
    parts = [[*text.split("\n", len(names) - 1), *[""] * len(names)] for text in map(str, samples)]
    columns = {
        name: np.array([texts[place] for texts in parts], dtype=object)
        for place, name in enumerate(names)
    }
    return tuple(_text_input(name, values) for name, values in columns.items()), columns


def _text_input(name: str, values: np.ndarray) -> Input:
    from workbench.deploy.card import Input
    from workbench.deploy.exported_bundle import example_in

    example = example_in(values)
    return Input(name=name, kind="text", dtype="string", has_missing=True, example=example)


def _inputs(members: Sequence[Member], samples: Any) -> tuple[tuple[Input, ...], dict[str, Any]]:
    """Return what the graph takes, and the samples by input."""
    from workbench.deploy.card import Input
    from workbench.deploy.exported_bundle import example_in
    from workbench.deploy.table_graph import input_of

    is_of_files = members[0].image_shape is None and not hasattr(samples, "columns")
    if is_of_files:
        pixels = np.moveaxis(np.asarray(samples), -1, 1)
        example = example_in(pixels)
        shape = pixels.shape[1:]
        return (
            Input(
                name="inputs",
                kind="array",
                shape=shape,
                dtype="float32",
                example=example,
                is_image=True,
            ),
        ), {"inputs": pixels}
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
    table: Any = samples
    given = {str(name): table[name].to_numpy() for name in table.columns}
    inputs = []
    for name, columns in learnt.items():
        all_of_them = [input_of(column, example_in(given[name])) for column in columns]
        known = dict.fromkeys(
            text for column_input in all_of_them for text in column_input.categories
        )
        has_missing = any(column_input.has_missing for column_input in all_of_them)
        update = {"categories": tuple(known), "has_missing": has_missing}
        inputs.append(all_of_them[0].model_copy(update=update))
    encodings = [member.table_texts for member in members if member.table_texts is not None]
    if encodings:  # of every fold they have the same columns
        inputs += [_text_input(name, given[name]) for name in encodings[0].names]
    return tuple(inputs), {column_input.name: given[column_input.name] for column_input in inputs}
