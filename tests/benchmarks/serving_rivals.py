"""The servers that ours is compared with.

The same model behind a plain FastAPI handler, and in Ray Serve.

`python -m tests.benchmarks.serving_rivals fastapi|ray BUNDLE PORT` starts one.
Both check the rows with pydantic, as their documentation shows, and compute on one thread.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np


def open_model(bundle: str) -> Any:
    """Return a function from rows of numbers to answers."""
    import onnxruntime

    from workbench.deploy.card import MODEL, read_card

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(Path(bundle) / MODEL), options)
    [given] = read_card(Path(bundle)).inputs

    def predict(rows: list[list[float]]) -> list[list[float]]:
        inputs = np.array(rows, dtype=np.float32).reshape(-1, *given.shape)
        return np.asarray(session.run(None, {given.name: inputs})[0]).tolist()

    return predict


def serve_with_fastapi(bundle: str, port: int) -> None:
    """Serve with a handler on the event loop, which is faster than one in a thread for such
    models.
    """
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel

    class Row(BaseModel):
        inputs: list[float]

    class Body(BaseModel):
        rows: list[Row]

    app, predict = FastAPI(), open_model(bundle)

    async def answer(body: Body) -> dict[str, Any]:
        predicted = predict([row.inputs for row in body.rows])
        return {"answers": [{"probabilities": row} for row in predicted]}

    answer.__annotations__["body"] = Body
    app.post("/predict")(answer)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", access_log=False)


def serve_with_ray(bundle: str, port: int) -> None:
    """Serve with one replica that computes concurrent requests together."""
    from ray import serve
    from starlette.responses import JSONResponse

    from workbench.cluster.head import attachment, local_head

    attachment.connect(num_cpus=2, num_gpus=0)
    serve.start(http_options={"host": "127.0.0.1", "port": port})

    @serve.deployment(max_ongoing_requests=200)
    class Model:
        def __init__(self) -> None:
            self.predict = open_model(bundle)

        @serve.batch(max_batch_size=64, batch_wait_timeout_s=0)
        async def together(self, rows: list[list[float]]) -> list[list[float]]:
            return self.predict(rows)

        async def __call__(self, request: Any) -> JSONResponse:
            body = await request.json()
            answers = [await self.together(row["inputs"]) for row in body["rows"]]
            return JSONResponse({"answers": [{"probabilities": row} for row in answers]})

    serve.run(Model.bind(), route_prefix="/predict")
    sys.stdin.read()
    serve.shutdown()
    local_head.shutdown()


if __name__ == "__main__":
    side, folder, number = sys.argv[1:]
    {"fastapi": serve_with_fastapi, "ray": serve_with_ray}[side](folder, int(number))
