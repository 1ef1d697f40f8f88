"""The searches that are compared, behind one interface.

Ours, Optuna's, Ray Tune's, SMAC3's and DEHB's.

Each is the library's own code with its defaults. Whose trial comes next, and how long its epochs
take, is decided by the benchmark's clock. The search of a library that is not installed raises
`ImportError`.
"""

from __future__ import annotations

import importlib
import logging
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np

from tests.builders.studies import make_experiment
from workbench.foundation.events import TrialEnded, TrialReported
from workbench.search import Study

GRACE = 3
"""Epochs before a trial may be stopped, for every search that stops trials early."""
REDUCTION = 3


@dataclass(frozen=True)
class Asked:
    """A training that a search wants."""

    key: Any
    params: Mapping[str, Any]
    epochs: int | None = None
    """After how many epochs it ends; None for all."""


class Search(Protocol):
    """Proposes trainings and learns from them; values are better when they are larger."""

    def ask(self) -> Asked:
        """Return the next training."""
        ...

    def report(self, asked: Asked, epoch: int, value: float, seconds: float) -> bool:
        """Learn the value after an epoch and the seconds so far.

        Return whether the training should stop.
        """
        ...

    def tell(
        self, asked: Asked, epoch: int, value: float, *, stopped: bool, seconds: float
    ) -> None:
        """Learn how a training ended: its last epoch, its value, and how long it took."""
        ...


class Ours:
    """The workbench's study."""

    def __init__(
        self,
        search: Mapping[str, Any],
        seed: int,
        *,
        sampler: str = "auto",
        pruner: str = "none",
        budget: Mapping[str, Any] | None = None,
        fidelity: Mapping[str, Any] | None = None,
    ) -> None:
        grace = {} if pruner == "none" else {"grace": GRACE}
        asha = {"reduction_factor": REDUCTION} if pruner == "asha" else {}
        self.study = Study(
            make_experiment(
                search=dict(search),
                sampler=sampler,
                seed=seed,
                budget=budget or {"trials": 100_000},
                objectives=[{"metric": "loss", "goal": "maximize"}],
                early_stop={"pruner": pruner, **grace, **asha},
                fidelity=fidelity,
            )
        )

    def ask(self) -> Asked:
        """Return the next training."""
        proposal = self.study.ask()
        assert proposal is not None
        return Asked(proposal.trial, proposal.params, proposal.params.get("epochs"))  # type: ignore[arg-type]

    def report(self, asked: Asked, epoch: int, value: float, seconds: float) -> bool:
        """Learn the value after an epoch."""
        event = TrialReported(
            trial=asked.key, step=epoch, epoch=None, elapsed_s=seconds, values={"loss": value}
        )
        return self.study.take_report(event)

    def tell(
        self, asked: Asked, epoch: int, value: float, *, stopped: bool, seconds: float
    ) -> None:
        """Learn how a training ended."""
        self.study.tell(
            asked.key,
            TrialEnded(
                trial=asked.key,
                attempt=0,
                state="pruned" if stopped else "complete",
                values={"loss": value},
            ),
        )


class OptunaSearch:
    """Optuna's study with one of its samplers and, if wanted, its successive halving."""

    def __init__(
        self, search: Mapping[str, Any], seed: int, *, sampler: str, asha: bool = False
    ) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
        samplers: dict[str, Callable[[], Any]] = {
            "tpe": lambda: optuna.samplers.TPESampler(seed=seed),
            "gp": lambda: optuna.samplers.GPSampler(seed=seed),
            "random": lambda: optuna.samplers.RandomSampler(seed=seed),
            "auto": lambda: _hub_sampler(seed),
        }
        pruner = (
            optuna.pruners.SuccessiveHalvingPruner(min_resource=GRACE, reduction_factor=REDUCTION)
            if asha
            else optuna.pruners.NopPruner()
        )
        self._study = optuna.create_study(
            direction="maximize", sampler=samplers[sampler](), pruner=pruner
        )
        self._distributions = {
            name: _optuna_distribution(domain) for name, domain in search.items()
        }
        self._stops = asha

    def ask(self) -> Asked:
        """Return the next training."""
        trial = self._study.ask(self._distributions)
        return Asked(trial, trial.params)

    def report(self, asked: Asked, epoch: int, value: float, seconds: float) -> bool:
        """Learn the value after an epoch."""
        if not self._stops:
            return False
        asked.key.report(value, epoch)
        return asked.key.should_prune()

    def tell(
        self, asked: Asked, epoch: int, value: float, *, stopped: bool, seconds: float
    ) -> None:
        """Learn how a training ended."""
        from optuna.trial import TrialState

        if stopped:
            self._study.tell(asked.key, state=TrialState.PRUNED)
        else:
            self._study.tell(asked.key, value)


def _hub_sampler(seed: int) -> Any:
    """Return the AutoSampler of OptunaHub, which is downloaded when it is first used."""
    hub = importlib.import_module("optunahub")  # no extra has it: what it loads has no version
    try:
        return hub.load_module("samplers/auto_sampler").AutoSampler(seed=seed)
    except Exception as error:  # no network, or too many requests: the rival is left out
        raise ImportError(f"OptunaHub cannot be reached: {type(error).__name__}") from error


def _optuna_distribution(domain: Mapping[str, Any]) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if "choices" in domain:
        return CategoricalDistribution(domain["choices"])
    kind = IntDistribution if isinstance(domain["low"], int) else FloatDistribution
    return kind(domain["low"], domain["high"], log=domain.get("log", False))


class RaySearch:
    """Ray Tune's OptunaSearch and ASHAScheduler, which receive what Tune's controller would pass to
    them.
    """

    def __init__(self, search: Mapping[str, Any], seed: int, *, num_epochs: int) -> None:
        from ray.tune.schedulers import ASHAScheduler
        from ray.tune.search.optuna import OptunaSearch as TuneOptunaSearch

        logging.getLogger("ray.tune").setLevel(logging.ERROR)
        np.random.seed(seed)
        space = {name: _optuna_distribution(domain) for name, domain in search.items()}
        self._searcher = TuneOptunaSearch(space=space, metric="value", mode="max", seed=seed)
        self._scheduler = ASHAScheduler(
            metric="value",
            mode="max",
            max_t=num_epochs,
            grace_period=GRACE,
            reduction_factor=REDUCTION,
        )
        self._num_asked = 0

    def ask(self) -> Asked:
        """Return the next training."""
        self._num_asked += 1
        trial: Any = SimpleNamespace(trial_id=f"{self._num_asked:05d}")
        params = self._searcher.suggest(trial.trial_id)
        assert params is not None
        self._scheduler.on_trial_add(None, trial)  # type: ignore[arg-type]
        return Asked(trial, params)

    def report(self, asked: Asked, epoch: int, value: float, seconds: float) -> bool:
        """Learn the value after an epoch."""
        result = {"training_iteration": epoch, "value": value}
        action = self._scheduler.on_trial_result(None, asked.key, result)  # type: ignore[arg-type]
        if action == "STOP":
            return True
        self._searcher.on_trial_result(asked.key.trial_id, result)
        return False

    def tell(
        self, asked: Asked, epoch: int, value: float, *, stopped: bool, seconds: float
    ) -> None:
        """Learn how a training ended."""
        result = {"training_iteration": epoch, "value": value}
        self._scheduler.on_trial_complete(None, asked.key, result)  # type: ignore[arg-type]
        self._searcher.on_trial_complete(asked.key.trial_id, result)


def _configuration_space(search: Mapping[str, Any], seed: int) -> Any:
    from ConfigSpace import Categorical, ConfigurationSpace, Float, Integer

    space = ConfigurationSpace(seed=seed)
    for name, domain in search.items():
        if "choices" in domain:
            space.add(Categorical(name, domain["choices"]))
        else:
            kind: Any = Integer if isinstance(domain["low"], int) else Float
            space.add(kind(name, (domain["low"], domain["high"]), log=domain.get("log", False)))
    return space


class Smac:
    """SMAC3's facade for hyper-parameters: random forests."""

    def __init__(self, search: Mapping[str, Any], seed: int, *, num_trials: int) -> None:
        from smac import HyperparameterOptimizationFacade, Scenario

        self._folder = tempfile.TemporaryDirectory()
        scenario = Scenario(
            _configuration_space(search, seed),
            n_trials=num_trials,
            deterministic=True,
            seed=seed,
            output_directory=self._folder.name,  # type: ignore[arg-type]
        )
        self._smac = HyperparameterOptimizationFacade(
            scenario, lambda config, seed=0: 0.0, overwrite=True, logging_level=False
        )

    def ask(self) -> Asked:
        """Return the next training."""
        info = self._smac.ask()
        return Asked(info, dict(info.config))

    def report(self, asked: Asked, epoch: int, value: float, seconds: float) -> bool:
        """Learn nothing."""
        return False

    def tell(
        self, asked: Asked, epoch: int, value: float, *, stopped: bool, seconds: float
    ) -> None:
        """Learn how a training ended."""
        from smac.runhistory import TrialValue

        self._smac.tell(asked.key, TrialValue(cost=-value, time=seconds), save=False)


class Dehb:
    """DEHB: differential evolution with Hyperband.

    Every training begins anew and ends where it wants.
    """

    def __init__(self, search: Mapping[str, Any], seed: int, *, num_epochs: int) -> None:
        from dehb import DEHB
        from loguru import logger

        logger.disable("dehb")
        self._folder = tempfile.TemporaryDirectory()
        self._dehb = DEHB(
            f=None,
            cs=_configuration_space(search, seed),
            min_fidelity=GRACE,
            max_fidelity=num_epochs,
            n_workers=1,
            seed=seed,
            output_path=self._folder.name,
            save_freq="end",
        )

    def ask(self) -> Asked:
        """Return the next training."""
        job = self._dehb.ask()
        assert isinstance(job, dict)
        return Asked(job, dict(job["config"]), max(1, round(job["fidelity"])))

    def report(self, asked: Asked, epoch: int, value: float, seconds: float) -> bool:
        """Learn nothing."""
        return False

    def tell(
        self, asked: Asked, epoch: int, value: float, *, stopped: bool, seconds: float
    ) -> None:
        """Learn how a training ended."""
        self._dehb.tell(asked.key, {"fitness": -value, "cost": seconds})
