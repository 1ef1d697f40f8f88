"""A model that was trained on image files takes image files, decoded as in training."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path

import httpx
import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from tests.deploy.test_exported_applications import run_script
from tests.deploy.trained import exported
from workbench.cli.exported_models import predict
from workbench.deploy.card import Card, Input, Output, read_card
from workbench.deploy.image_files import answers_for, image_files_of
from workbench.deploy.predictor import Predictor
from workbench.deploy.rows import columns_from
from workbench.deploy.serving.app import Service, make_app
from workbench.deploy.serving.openapi import describe_server
from workbench.deploy.serving.served_models import Limits, ServedModel, Version
from workbench.foundation.errors import DataError
from workbench.runs.bundles.bundle_loading import Bundle


def fill(folder: Path) -> Path:
    """Make a folder of two classes of noisy pictures, none of them square."""
    random = np.random.default_rng(0)
    for name, shade in (("dark", 40), ("light", 210)):
        (folder / name).mkdir(parents=True)
        for number in range(6):
            noise = random.integers(-40, 40, (14, 19, 3))
            picture = Image.fromarray((shade + noise).clip(0, 255).astype(np.uint8))
            picture.save(folder / name / f"{number}.{'png' if number % 2 else 'JPG'}")
    return folder


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    data = {"name": "images", "path": str(fill(folder / "pictures")), "size": 8, "cache": "none"}
    exported(folder / "bundle", "mlp", data)
    return folder / "bundle"


def test_image_files_are_answered_as_the_pixels_that_training_had(bundle: Path) -> None:
    from workbench.data import load

    pictures = bundle.parent / "pictures"
    train = load(
        "images", {"path": str(pictures), "size": 8, "validation_fraction": 0.01, "cache": "none"}
    ).train
    files = train.files.tolist()  # type: ignore[attr-defined]
    predictor = Predictor.open(bundle)
    answers = answers_for(predictor, files)
    pixels = np.round(train.batch(np.arange(len(files)))[0] * 127.5 + 127.5)
    expected = predictor.predict({"inputs": pixels})
    assert answers.files == tuple(files)
    assert answers.probabilities is not None
    np.testing.assert_array_equal(answers.probabilities, expected.probabilities)
    assert Bundle(bundle, {}, {}).predict(files[0]).classes == expected.classes[:1]  # type: ignore[index]


def test_files_and_folders_are_answered_in_any_number_of_batches(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures, predictor = bundle.parent / "pictures", Predictor.open(bundle)
    whole = answers_for(predictor, pictures)
    assert [Path(file).name for file in whole.files] == [
        f"{n}.{'png' if n % 2 else 'JPG'}" for n in range(6)
    ] * 2
    monkeypatch.setattr("workbench.deploy.image_files._BATCH", 5)
    parts = answers_for(predictor, [pictures / "dark", pictures / "light"])
    assert parts.files == whole.files
    np.testing.assert_allclose(parts.probabilities, whole.probabilities, atol=1e-6)  # type: ignore[arg-type]


def test_the_command_names_each_file_and_its_class(bundle: Path) -> None:
    picture = bundle.parent / "pictures" / "dark" / "1.png"
    done = CliRunner().invoke(
        predict, [str(bundle), str(picture), str(bundle.parent / "pictures" / "light")]
    )
    assert done.exit_code == 0, done.output
    header, first, *others = done.output.splitlines()
    assert header == "file,prediction,probability of dark,probability of light"
    assert first.startswith(f"{picture},")
    assert len(others) == 6
    listed = json.loads(CliRunner().invoke(predict, [str(bundle), str(picture), "--json"]).output)
    assert listed["predictions"][0]["file"] == str(picture)


def test_the_script_of_the_bundle_answers_alike(bundle: Path) -> None:
    picture = bundle.parent / "pictures" / "light" / "1.png"
    answers = answers_for(Predictor.open(bundle), picture)
    assert answers.classes is not None
    assert answers.probabilities is not None
    shown = CliRunner().invoke(predict, [str(bundle), str(picture)], standalone_mode=False)
    assert run_script(bundle, picture) == shown.stdout.splitlines()


def test_a_server_takes_images_as_clients_send_them(bundle: Path) -> None:
    files = [bundle.parent / "pictures" / name for name in ("dark/0.JPG", "light/1.png")]
    expected = answers_for(Predictor.open(bundle), files)
    assert expected.probabilities is not None
    encoded = [base64.encodebytes(file.read_bytes()).decode() for file in files]
    jpeg, png = (file.read_bytes() for file in files)
    encoded[1] = f"data:image/png;base64,{encoded[1]}"
    rows = json.dumps({"rows": [{"inputs": text} for text in encoded]}).encode()

    (status, together), *alone, no_image, form, large = _post_all(
        bundle,
        20_000,
        (rows, "application/json"),
        (jpeg, "image/jpeg"),
        (png, "image/png"),
        (b"no picture", "image/png"),
        (png, "multipart/form-data; boundary=x"),
        (bytes(20_001), "image/png"),
    )

    assert status == 200, together
    probabilities = [list(each["probabilities"].values()) for each in together["answers"]]
    np.testing.assert_allclose(probabilities, expected.probabilities, atol=1e-6)
    for (status, answered), answer in zip(alone, together["answers"], strict=True):
        assert status == 200, answered
        assert answered["answers"][0]["class"] == answer["class"]
    assert (no_image[0], no_image[1]["field"]) == (422, "rows.0.inputs")
    assert "its content has the format of no image" in no_image[1]["problem"]
    assert form[0] == 415
    assert "image/jpeg, image/png" in form[1]["allowed"]
    assert (large[0], large[1]["allowed"]) == (413, "20000 bytes")
    described = describe_server({"shades": read_card(bundle)}, has_token=False)
    body = described["paths"]["/v1/shades/predict"]["post"]["requestBody"]
    assert {"application/json", "image/jpeg", "image/png"} <= body["content"].keys()


def _post_all(bundle: Path, body_bytes: int, *bodies: tuple[bytes, str]) -> list[tuple[int, dict]]:
    """Return the status and the answer for each body and its type, of a server in this process."""
    limits = Limits(max_batch=2, body_bytes=body_bytes)
    model = ServedModel("shades", bundle, Version.open(bundle, limits), limits)
    service = Service([model], limits, None)

    async def post_all() -> list[tuple[int, dict]]:
        answering = asyncio.create_task(model.queue.run())
        transport = httpx.ASGITransport(make_app(service))
        answers = []
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            for content, kind in bodies:
                headers = {"Content-Type": kind}
                answer = await client.post("/v1/shades/predict", content=content, headers=headers)
                answers.append((answer.status_code, answer.json()))
        answering.cancel()
        return answers

    try:
        return asyncio.run(post_all())
    finally:
        service.close()


@pytest.mark.parametrize(
    ("samples", "problem"),
    [
        ("no.png", r"no\.png does not exist"),
        ("empty", r"empty contains no images; allowed: \.bmp, \.gif"),
        (
            "text.png",
            r"text\.png cannot be read as an image: its content has the format of no image",
        ),
        ("rows.heic", r"rows\.heic has an unknown file extension; allowed: .*\.png"),
    ],
)
def test_what_is_no_image_is_named(
    bundle: Path, tmp_path: Path, samples: str, problem: str
) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("text.png", "rows.heic"):
        (tmp_path / name).write_text("no picture")
    with pytest.raises(DataError, match=problem):
        answers_for(Predictor.open(bundle), tmp_path / samples)


@pytest.mark.parametrize("is_image", [True, False])
def test_a_table_for_a_model_of_pictures_is_refused_with_what_it_takes(
    is_image: bool, tmp_path: Path
) -> None:
    one = Input(name="inputs", kind="array", shape=(1, 8, 8), dtype="float32", is_image=is_image)
    output = Output(name="outputs", kind="values")
    card = Card(
        name="m",
        run_id="m-1",
        trained_on="",
        task="",
        model="",
        inputs=(one,),
        outputs=(output,),
        opset=18,
    )
    (tmp_path / "flats.csv").write_text("flat id,rent\n1,CHF 2466\n")
    with pytest.raises(DataError) as refused:
        columns_from(card, tmp_path / "flats.csv")
    assert (
        ("takes images" in str(refused.value))
        == ("folders of them" in str(refused.value))
        == is_image
    )
    assert ".." not in str(refused.value)


def test_other_models_refuse_image_files_and_still_take_texts(tmp_path: Path) -> None:
    output = Output(name="outputs", kind="values")
    array = Input(name="inputs", kind="array", shape=(1, 8, 8), dtype="float32")
    text = Input(name="review", kind="text", dtype="string")
    of_arrays, of_texts = (
        Card(
            name="m",
            run_id="m-1",
            trained_on="",
            task="",
            model="",
            inputs=(one,),
            outputs=(output,),
            opset=18,
        )
        for one in (array, text)
    )
    with pytest.raises(
        DataError, match=r"takes an array, but cat\.png is a file; allowed: one file of rows"
    ):
        image_files_of(of_arrays, "cat.png")
    with pytest.raises(DataError, match=r"a\.csv is one of several files"):
        image_files_of(of_texts, (Path("a.csv"), Path("b.csv")))
    with pytest.raises(DataError, match="is a folder"):
        image_files_of(of_arrays, tmp_path)
    assert image_files_of(of_texts, ["it works.png"]) is None
    assert image_files_of(of_arrays, "rows.csv") is None
