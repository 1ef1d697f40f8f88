from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from workbench.deploy.stages import Stage, Stages
from workbench.foundation.errors import RunError
from workbench.tiers.processes.decoders import Pairs, best_decoder, linear_decoder
from workbench.tiers.processes.leak import Samples, measure_leak, sentences

random = np.random.default_rng(0)


def pairs(number: int, *, keeps: int) -> Pairs:
    """Inputs of five independent numbers, of which what is sent holds some, mixed."""
    inputs = random.normal(size=(number, 5))
    mixed = inputs[:, :keeps] @ np.random.default_rng(1).normal(size=(keeps, keeps))
    return Pairs(mixed, inputs)


@pytest.mark.parametrize("keeps", [2, 5])
def test_a_linear_decoder_recovers_what_was_mixed_and_no_more(keeps: int) -> None:
    decoder = linear_decoder(pairs(400, keeps=keeps), pairs(100, keeps=keeps))
    held_out = pairs(500, keeps=keeps)
    decoded = decoder.decode(held_out.sent)
    assert np.allclose(decoded[:, :keeps], held_out.inputs[:, :keeps], atol=0.1)
    # Of numbers that were not sent nothing is known but their mean.
    assert keeps == 5 or decoded[:, keeps:].std() < 0.3


def test_what_no_line_can_undo_is_left_to_the_network() -> None:
    inputs = random.uniform(-1, 1, size=(400, 2))
    known = Pairs(np.stack([inputs[:, 0] ** 3, np.exp(3 * inputs[:, 1])], axis=1), inputs)
    decoder = best_decoder(known)
    assert decoder.name == "network"
    assert np.square(decoder.decode(known.sent) - inputs).mean() < 0.1 * inputs.var()


_FIRST = """
<ir_version: 10, opset_import: ["" : 20]>
stage (float[batch, 4] inputs) => (float[batch, 4] features, float[batch, 4] probabilities)
<float[4] kept = {1, 1, 1, 0}> {
    features = Mul(inputs, kept)
    probabilities = Softmax<axis = -1>(inputs)
}
"""
_LAST = """
<ir_version: 10, opset_import: ["" : 20]>
stage (float[batch, 4] features) => (float[batch, 4] probabilities) {
    probabilities = Softmax<axis = -1>(features)
}
"""


def write_stages(folder: Path) -> Stages:
    """Write a model whose features are three of four numbers.

    No answer leaves at its first exit.
    """
    for number, text in enumerate((_FIRST, _LAST)):
        onnx.save(onnx.parser.parse_model(text), str(folder / f"stage_{number}.onnx"))
    parts = tuple(
        Stage(
            file=f"stage_{number}.onnx",
            input_shape=(4,),
            temperature=1.0,
            accuracy=1.0,
            threshold=1.0 - number,
            share=float(number),
        )
        for number in (0, 1)
    )
    return Stages(stages=parts, accuracy=1.0, num_samples=500)


def samples(number: int) -> Samples:
    inputs = random.normal(size=(number, 4)).astype(np.float32)
    return Samples(inputs, inputs[:, :3].argmax(axis=1))


@pytest.mark.slow
def test_what_is_sent_is_recovered_and_noise_takes_from_it_and_from_accuracy(
    tmp_path: Path,
) -> None:
    stages = write_stages(tmp_path)
    steps: list[str] = []
    leak = measure_leak(
        tmp_path, stages, samples(250), samples(1000), noise=3.0, on_progress=steps.append
    )
    assert steps == [f"measuring what features give away, way {way} of 8" for way in range(1, 9)]
    by_way = {(attack.features, attack.noise): attack for attack in leak}
    assert len(by_way) == len(leak) == 8
    plain, small, noisy = by_way["float32", 0.0], by_way["uint8", 0.0], by_way["float32", 3.0]
    # Three of four numbers of equal variance are sent.
    assert plain.recovered == pytest.approx(0.75, abs=0.03)
    assert small.recovered == pytest.approx(0.75, abs=0.03)
    assert plain.low <= plain.recovered <= plain.high
    # Of a number with noise of three times its size a tenth remains: 1 / (1 + 9).
    assert noisy.recovered < 0.2
    assert plain.accuracy > 0.8 > 0.6 > noisy.accuracy
    shares = [by_way["float32", noise].recovered for noise in (0.0, 0.3, 1.0, 3.0)]
    assert shares == sorted(shares, reverse=True)
    assert (plain.bytes_per_sample - small.bytes_per_sample) == 4 * 3
    lines = sentences(leak, features="float32", noise=0.0, first_tier="end")
    assert "recover at least 75%" in lines[0].replace("74%", "75%").replace("76%", "75%")
    assert "privacy.noise: 0.3" in lines[1]


def test_a_model_that_sends_no_features_is_refused(tmp_path: Path) -> None:
    stages = write_stages(tmp_path)
    with pytest.raises(RunError, match="can all be read"):
        measure_leak(
            tmp_path,
            stages.model_copy(update={"stages": stages.stages[:1]}),
            samples(9),
            samples(9),
        )


def test_numbers_of_words_are_not_compared_as_amounts(tmp_path: Path) -> None:
    words = Samples(np.arange(36).reshape(9, 4), np.zeros(9, dtype=np.int64))
    with pytest.raises(RunError, match="leaks of texts cannot be measured"):
        measure_leak(tmp_path, write_stages(tmp_path), words, words)
