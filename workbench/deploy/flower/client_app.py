# pyright: reportMissingImports=false
"""The app of a client: trains and evaluates on the samples that it holds."""

from functools import lru_cache
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from workbench.deploy.flower.learning import CLIENT_FILE, Learning

app = ClientApp()


@lru_cache(maxsize=1)
def learning():
    """Return the model, which a process loads once."""
    return Learning(Path(__file__).parent)


def number_of(context):
    """Return the number of a device, or of its partition in a simulation."""
    return int(context.node_config.get("client", context.node_config.get("partition-id", 0)))


def samples(context):
    """Return the samples of this client: one file on a device, one of many in a simulation."""
    path = context.node_config.get("data")
    if path is None:
        path = Path(str(context.run_config["samples"])) / CLIENT_FILE.format(number_of(context))
    return np.load(path)


def weights_of(message):
    """Return the weights that the server has sent."""
    return {name: array.numpy() for name, array in message.content["arrays"].items()}


@app.train()
def train(message, context):
    """Train from the weights of a round."""
    held, number = samples(context), int(message.content["config"]["server-round"]) - 1
    update = learning().train(
        weights_of(message),
        held["inputs"],
        held["targets"],
        number=number,
        client=number_of(context),
    )
    arrays = ArrayRecord({name: Array(value) for name, value in update.weights.items()})
    metrics = {
        "num-examples": update.num_samples,
        "train_loss": update.loss,
        "client": number_of(context),
    }
    return Message(
        content=RecordDict({"arrays": arrays, "metrics": MetricRecord(metrics)}), reply_to=message
    )


@app.evaluate()
def evaluate(message, context):
    """Measure the weights of a round."""
    held = samples(context)
    values = learning().evaluate(weights_of(message), held["val_inputs"], held["val_targets"])
    metrics = {"num-examples": len(held["val_targets"]), **values}
    return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)
