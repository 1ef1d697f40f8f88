"""The files of an application for Flower that only Flower reads.

Its two apps, its project file, its README.

They import Flower, which is installed where the application is, so they are kept as text.
"""

from __future__ import annotations

CLIENT_FILE = "client-{:05}.npz"

_CLIENT = '''\
"""The app of a client: trains and evaluates on the samples that it holds."""

from functools import lru_cache
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from PACKAGE.learning import Learning

app = ClientApp()


@lru_cache(maxsize=1)
def learning():
    """Return the model, which a process loads once."""
    return Learning(Path(__file__).parent)


def number_of(context):
    """Return the number of this client: of a device its own, in a simulation that of the partition."""
    return int(context.node_config.get("client", context.node_config.get("partition-id", 0)))


def samples(context):
    """Return the samples of this client: of a device its own file, in a simulation one of many."""
    path = context.node_config.get("data")
    if path is None:
        path = Path(str(context.run_config["samples"])) / "CLIENT_FILE".format(number_of(context))
    return np.load(path)


def weights_of(message):
    """Return the weights that the server has sent."""
    return {name: array.numpy() for name, array in message.content["arrays"].items()}


@app.train()
def train(message, context):
    """Train from the weights of a round."""
    held, number = samples(context), int(message.content["config"]["server-round"]) - 1
    update = learning().train(
        weights_of(message), held["inputs"], held["targets"], number=number, client=number_of(context)
    )
    arrays = ArrayRecord({name: Array(value) for name, value in update.weights.items()})
    metrics = {"num-examples": update.num_samples, "train_loss": update.loss, "client": number_of(context)}
    return Message(
        content=RecordDict({"arrays": arrays, "metrics": MetricRecord(metrics)}), reply_to=message
    )


@app.evaluate()
def evaluate(message, context):
    """Measure the weights of a round."""
    held = samples(context)
    found = learning().evaluate(weights_of(message), held["val_inputs"], held["val_targets"])
    metrics = {"num-examples": len(held["val_targets"]), **found}
    return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)
'''

_SERVER = '''\
"""The app of the server: aggregates what clients send, by the rule and the settings of the trial."""

import json
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from PACKAGE.learning import Aggregation, Learning

app = ServerApp()


def arrays_of(weights):
    """Return weights as Flower sends them."""
    return ArrayRecord({name: Array(value) for name, value in weights.items()})


class Rounds(FedAvg):
    """Draws and evaluates clients as FedAvg does, and aggregates as the workbench does."""

    def __init__(self, settings):
        """Take over the settings of the trial."""
        clients = settings["clients"]
        drawn = min(clients, max(1, round(settings["fraction"] * clients)))
        super().__init__(
            fraction_train=min(1.0, (drawn + 0.5) / clients), fraction_evaluate=1.0, min_train_nodes=drawn,
            min_evaluate_nodes=1, min_available_nodes=clients,
        )
        self.aggregation = Aggregation(settings)
        self.before = {}
        self.began_s, self.train_s = 0.0, 0.0

    def configure_train(self, server_round, arrays, config, grid):
        """Keep the weights of the round, and draw its clients."""
        self.began_s = time.perf_counter()
        self.before = {name: array.numpy() for name, array in arrays.items()}
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round, replies):
        """Return the weights after the round, and the mean loss of its samples."""
        valid, _ = self._check_and_log_replies(replies, is_train=True)
        found = sorted((reply.content for reply in valid), key=lambda content: content["metrics"]["client"])
        updates = [
            (
                {name: array.numpy() for name, array in content["arrays"].items()},
                content["metrics"]["num-examples"],
            )
            for content in found
        ]
        if not updates:
            return None, None
        total = sum(number for _, number in updates)
        losses = [content["metrics"]["train_loss"] * content["metrics"]["num-examples"] for content in found]
        metrics = MetricRecord({"train_loss": sum(losses) / max(1, total), "num-examples": total})
        after = self.aggregation.step(self.before, updates)
        self.train_s = time.perf_counter() - self.began_s
        return arrays_of(after), metrics

    def aggregate_evaluate(self, server_round, replies):
        """Return what was measured, and the seconds of the round, all and of its training."""
        metrics = super().aggregate_evaluate(server_round, replies)
        if metrics is not None:
            metrics["train_s"], metrics["round_s"] = self.train_s, time.perf_counter() - self.began_s
        return metrics


@app.main()
def main(grid, context):
    """Make all rounds; keep the weights and what was measured, if a folder for them is given."""
    learning = Learning(Path(__file__).parent)
    strategy = Rounds(learning.settings)
    result = strategy.start(grid, arrays_of(learning.initial()), num_rounds=int(context.run_config["rounds"]))
    folder = str(context.run_config["results"])
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        np.savez(Path(folder) / "weights.npz", **{name: one.numpy() for name, one in result.arrays.items()})
        rounds = {number: dict(found) for number, found in result.evaluate_metrics_clientapp.items()}
        (Path(folder) / "rounds.json").write_text(json.dumps(rounds, indent=2))
'''

_PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "PACKAGE"
version = "1.0.0"
description = "NAME"
license = "Apache-2.0"
dependencies = ["flwr[simulation]>=1.42,<2", "torch==TORCH", "numpy>=2"]

[tool.hatch.build.targets.wheel]
packages = ["PACKAGE"]

[tool.flwr.app]
publisher = "workbench"

[tool.flwr.app.components]
serverapp = "PACKAGE.server_app:app"
clientapp = "PACKAGE.client_app:app"

[tool.flwr.app.config]
rounds = ROUNDS
samples = "clients"
results = ""
"""

_README = """\
# NAME, as an application for Flower

The federation of a trial: the same model, local training, aggregation and rule of the server, ROUNDS rounds.
It needs Flower, torch and numpy, and not the workbench:

```console
python -m venv flower-env
flower-env/bin/pip install .
```

## Simulated

`clients/` holds the samples of NUM clients as the experiment divided them.

```console
flower-env/bin/flwr run . --stream --federation-config 'num-supernodes=NUM' --run-config "samples='$PWD/clients'"
```

`--run-config "results='/path/to/results'"` keeps the weights, `weights.npz`, and what was measured by round,
`rounds.json`.

## On devices

Each device holds its samples in a file of numpy: `inputs` and `targets` to train on, `val_inputs` and
`val_targets` to evaluate, as the files of `clients/` do. It takes part with

```console
flower-supernode --superlink HOST:9092 --node-config 'client=0 data="/path/to/samples.npz"'
```

and its number, from 0, decides with the seed in which order it trains. The server waits until NUM devices
are there.
NOTE
"""
_DRAWS = """
Failures, stragglers and a timeout of clients were those of the trial. Here nothing is drawn: a device that
does not answer is left out.
"""


def files(
    package: str, *, name: str, rounds: int, num_clients: int, torch: str, draws: bool
) -> dict[str, str]:
    """Return the files by their paths.

    Args:
        package: The name of the package with the apps.
        name: The name of the run.
        rounds: Number of rounds.
        num_clients: Number of clients.
        torch: The version of torch that wrote the model.
        draws: Whether the trial drew failures or stragglers, or had a timeout.
    """
    words = {
        "PACKAGE": package,
        "CLIENT_FILE": CLIENT_FILE,
        "NOTE": _DRAWS if draws else "",
        "NUM": str(num_clients),
        "ROUNDS": str(rounds),
        "TORCH": torch,
        "NAME": name.replace('"', "'"),
    }
    texts = {
        f"{package}/__init__.py": "",
        f"{package}/client_app.py": _CLIENT,
        f"{package}/server_app.py": _SERVER,
        "pyproject.toml": _PROJECT,
        "README.md": _README,
    }
    found = {}
    for path, text in texts.items():
        for word, value in words.items():
            text = text.replace(word, value)
        found[path] = text
    return found
