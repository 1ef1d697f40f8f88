# pyright: reportMissingImports=false
"""The app of the server: aggregates what clients send, by the rule of the trial."""

import json
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from workbench.deploy.flower.learning import Aggregation, Learning

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
            fraction_train=min(1.0, (drawn + 0.5) / clients),
            fraction_evaluate=1.0,
            min_train_nodes=drawn,
            min_evaluate_nodes=1,
            min_available_nodes=clients,
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
        contents = sorted(
            (reply.content for reply in valid), key=lambda content: content["metrics"]["client"]
        )
        updates = [
            (
                {name: array.numpy() for name, array in content["arrays"].items()},
                content["metrics"]["num-examples"],
            )
            for content in contents
        ]
        if not updates:
            return None, None
        total = sum(number for _, number in updates)
        measured = [content["metrics"] for content in contents]
        loss_sum = sum(values["train_loss"] * values["num-examples"] for values in measured)
        metrics = MetricRecord({"train_loss": loss_sum / max(1, total), "num-examples": total})
        after = self.aggregation.step(self.before, updates)
        self.train_s = time.perf_counter() - self.began_s
        return arrays_of(after), metrics

    def aggregate_evaluate(self, server_round, replies):
        """Return what was measured, and the seconds of the round, all and of its training."""
        metrics = super().aggregate_evaluate(server_round, replies)
        if metrics is not None:
            metrics["train_s"] = self.train_s
            metrics["round_s"] = time.perf_counter() - self.began_s
        return metrics


@app.main()
def main(grid, context):
    """Run all rounds. Write the weights and the measurements if there is a folder for them."""
    learning = Learning(Path(__file__).parent)
    strategy = Rounds(learning.settings)
    result = strategy.start(
        grid, arrays_of(learning.initial()), num_rounds=int(context.run_config["rounds"])
    )
    name = str(context.run_config["results"])
    if name:
        folder = Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        weights = {name: array.numpy() for name, array in result.arrays.items()}
        np.savez(folder / "weights.npz", **weights)
        rounds = {number: dict(of) for number, of in result.evaluate_metrics_clientapp.items()}
        (folder / "rounds.json").write_text(json.dumps(rounds, indent=2))
