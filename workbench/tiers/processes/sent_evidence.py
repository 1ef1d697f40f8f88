"""How well the exits answer what was sent.

Validation samples pass through frames before the next stage.

A tier that quantises what it sends, or adds noise, changes later answers. `features` decides what
is sent, and `workbench.tiers.placement` uses the answers for schedulers.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from workbench.deploy.card import read_card
from workbench.deploy.stages import Evidence, Scene, read_stages, surest_view
from workbench.tiers.placement.class_groups import (
    choose_group_threshold,
    group_numbers,
    group_probabilities,
    groups_of,
)
from workbench.tiers.placement.cut_bundle import write_cut
from workbench.tiers.placement.system import System
from workbench.tiers.placement.tiers_file import Privacy, TiersFile
from workbench.tiers.processes.features import Outgoing, received
from workbench.tiers.processes.scenes import aggregate
from workbench.tiers.processes.stage_model import StageModel
from workbench.tiers.processes.tier_settings import StageSettings

_BATCH = 256


def changes_answers(file: TiersFile) -> bool:
    """Return whether answers differ from those to what the first tier has computed of all views."""
    return _changes_values(file.privacy) or bool(file.place.missing_views)


def _changes_values(privacy: Privacy) -> bool:
    return privacy.features != "float32" or privacy.noise > 0


def with_sent_evidence(
    system: System,
    privacy: Privacy,
    bundle: Path,
    inputs: np.ndarray,
    targets: np.ndarray,
    *,
    seed: int = 0,
    labels: Mapping[str, Sequence[str]] | None = None,
    missing: Sequence[int] = (),
) -> System:
    """Return a system that knows how its exits do on what is sent, and with groups of classes.

    Args:
        system: The system.
        privacy: How values are sent.
        bundle: The bundle with the stages.
        inputs: (samples, ...) of the validation split, as the first stage takes them.
        targets: (samples,): the right classes.
        seed: Seed of the noise.
        labels: Groups of classes by name, as in `place.labels`.
        missing: The views that are missing in every scene.

    Returns:
        The same system if nothing that is sent is changed, there are no groups, and no view is
        missing.

    Raises:
        ExperimentError: If a group names no class.
        ValueError: If a graph is not a stage.
    """
    if not _changes_values(privacy) and not labels and not missing:
        return system
    groups = groups_of(labels, read_card(bundle).outputs[0].classes) if labels else []
    scene = read_stages(bundle).scene
    views = None if scene is None else _Views(scene, missing)

    def seen(folder: Path, sent_before: int | None) -> Evidence:
        models = [
            StageModel(StageSettings(number, str(folder / stage.file)), threads=1)
            for number, stage in enumerate(read_stages(folder).stages)
        ]
        outgoing = Outgoing(privacy.features, privacy.noise, np.random.default_rng(seed))
        return _evidence(
            models,
            inputs,
            targets,
            outgoing=outgoing,
            sent_before=sent_before,
            groups=groups,
            views=views,
        )

    cut = system.cut
    if cut is not None and cut.scheduler == "end-cloud":
        with tempfile.TemporaryDirectory() as parts:
            write_cut(bundle, cut.is_there, system.evidence, Path(parts))
            cut = replace(cut, sent_evidence=seen(Path(parts), 1))
    evidence = seen(bundle, None)
    return replace(
        system,
        evidence=evidence,
        sent_evidence=seen(bundle, 1),
        raw_evidence=seen(bundle, 0),
        cut=cut,
        group_threshold=choose_group_threshold(evidence) if groups else None,
    )


class _Views:
    """The views of a scene that are there, as the second stage joins them."""

    def __init__(self, scene: Scene, missing: Sequence[int]) -> None:
        self._scene = scene
        self.there = [view for view in range(scene.num_views) if view not in missing]

    def seen(self, inputs: np.ndarray) -> np.ndarray:
        """Return the views of samples that are there, one after another."""
        return inputs[:, self.there].reshape(-1, *inputs.shape[2:])

    def joined(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return what the second stage takes, and its masks."""
        scenes = features.reshape(-1, len(self.there), *features.shape[1:])
        joined = [
            aggregate(
                dict(zip(self.there, views, strict=True)),
                range(self._scene.num_views),
                self._scene.aggregate,
            )
            for views in scenes
        ]
        values, masks = zip(*joined, strict=True)
        return np.stack(values), np.stack(masks)


def _evidence(
    models: Sequence[StageModel],
    inputs: np.ndarray,
    targets: np.ndarray,
    *,
    outgoing: Outgoing,
    sent_before: int | None,
    groups: Sequence[Sequence[int]],
    views: _Views | None = None,
) -> Evidence:
    """Return how each exit does where the values are sent before a stage, if any."""
    confidence = np.zeros((len(inputs), len(models)))
    is_correct = np.zeros(confidence.shape, dtype=bool)
    group_confidence, group_is_correct = np.zeros_like(confidence), np.zeros_like(is_correct)
    numbers = group_numbers(groups)
    for first in range(0, len(inputs), _BATCH):
        rows = slice(first, first + _BATCH)
        values, masks = inputs[rows], None
        if views is not None:
            values = views.seen(values)
        for number, model in enumerate(models):
            if number == sent_before:
                values = received(values, outgoing, stage=number)
            if number == 1 and views is not None:
                values, masks = views.joined(values)
            answers, values = model.run(values.astype(model.dtype, copy=False), masks)
            if not number and views is not None and answers is not None:
                answers = surest_view(answers.reshape(-1, len(views.there), answers.shape[1]))
            if answers is not None:  # a part of a model that is only cut has no exit
                confidence[rows, number] = answers.max(axis=1)
                is_correct[rows, number] = answers.argmax(axis=1) == targets[rows]
                if groups:
                    group_confidence[rows, number] = group_probabilities(answers, groups).max(
                        axis=1
                    )
                    is_right = numbers[answers.argmax(axis=1)] == numbers[targets[rows]]
                    group_is_correct[rows, number] = is_right
    if not groups:
        return Evidence(confidence, is_correct)
    return Evidence(confidence, is_correct, group_confidence, group_is_correct)
