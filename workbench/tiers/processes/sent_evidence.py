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
from workbench.deploy.stages import Evidence, read_stages
from workbench.tiers.placement.cut_bundle import write_cut
from workbench.tiers.placement.labels import (
    choose_group_threshold,
    group_numbers,
    group_probabilities,
    groups_of,
)
from workbench.tiers.placement.system import System
from workbench.tiers.placement.tiers_file import Privacy
from workbench.tiers.processes.features import Outgoing, received
from workbench.tiers.processes.settings import StageSettings
from workbench.tiers.processes.stage_model import StageModel

_BATCH = 256


def changes_answers(privacy: Privacy) -> bool:
    """Return whether what a tier sends differs from what it has computed."""
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

    Returns:
        The same system if nothing that is sent is changed, and there are no groups.

    Raises:
        ExperimentError: If a group names no class.
        ValueError: If a graph is not a stage.
    """
    if not changes_answers(privacy) and not labels:
        return system
    groups = groups_of(labels, read_card(bundle).outputs[0].classes) if labels else []

    def seen(folder: Path, sent_before: int | None) -> Evidence:
        models = [
            StageModel(StageSettings(number, str(folder / stage.file)), threads=1)
            for number, stage in enumerate(read_stages(folder).stages)
        ]
        outgoing = Outgoing(privacy.features, privacy.noise, np.random.default_rng(seed))
        return _evidence(
            models, inputs, targets, outgoing=outgoing, sent_before=sent_before, groups=groups
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


def _evidence(
    models: Sequence[StageModel],
    inputs: np.ndarray,
    targets: np.ndarray,
    *,
    outgoing: Outgoing,
    sent_before: int | None,
    groups: Sequence[Sequence[int]],
) -> Evidence:
    """Return how each exit does where the values are sent before a stage, if any."""
    confidence = np.zeros((len(inputs), len(models)))
    is_correct = np.zeros(confidence.shape, dtype=bool)
    group_confidence, group_is_correct = np.zeros_like(confidence), np.zeros_like(is_correct)
    numbers = group_numbers(groups)
    for first in range(0, len(inputs), _BATCH):
        rows = slice(first, first + _BATCH)
        values = inputs[rows]
        for number, model in enumerate(models):
            if number == sent_before:
                values = received(values, outgoing, stage=number)
            answers, values = model.run(values.astype(model.dtype, copy=False))
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
