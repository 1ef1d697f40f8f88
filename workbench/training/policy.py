"""A train function that learns a policy for an environment, such as one of Gymnasium.

Several copies of the environment are played in turn, and the policy learns from the rewards by
proximal policy optimisation (PPO). Use it as `train` in an experiment. An environment has `reset`
and `step`, and its actions are numbers from 0.

Sources: Schulman et al., Proximal Policy Optimization Algorithms (2017) and High-Dimensional
Continuous Control Using Generalized Advantage Estimation (2016).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor, nn
from torch.nn import functional

from workbench.experiment.validation_errors import refusal
from workbench.foundation.errors import ExperimentError, MissingDependencyError, install_command
from workbench.foundation.registry import load_object
from workbench.models.configurations import Activation
from workbench.models.mlp import MLP

POLICY = "policy.pt"
"""The file of the policy, in the folder of a trial and in `files/` of its bundle."""
_EVALUATION_SEED = 1_000_000


class Environment(Protocol):
    """An environment, as Gymnasium defines it. `action_space.n` is the number of actions."""

    action_space: Any

    def reset(self, *, seed: int | None = None) -> tuple[Any, Any]:
        """Start an episode, and return the first observation and anything else."""
        ...

    def step(self, action: int, /) -> tuple[Any, Any, Any, Any, Any]:
        """Act. Return observation, reward, has ended, was cut off, and anything else."""
        ...


class PolicySettings(BaseModel):
    """The settings of a policy and its training. Each can be searched."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    environment: str = Field(
        description="module:Class of an environment, or the id of one that Gymnasium registers."
    )
    lr: float = Field(1e-3, gt=0, description="Learning rate of Adam, falling linearly to zero.")
    hidden_width: int = Field(64, ge=1, le=4096, description="Units in each hidden layer.")
    num_layers: int = Field(2, ge=0, le=16, description="Number of hidden layers.")
    activation: Activation = Field("tanh", description="Function after each hidden layer.")
    discount: float = Field(
        0.99, gt=0, le=1, description="Worth of a reward that comes one step later."
    )
    trace: float = Field(
        0.95, ge=0, le=1, description="Weight of later steps in an advantage (lambda)."
    )
    clip: float = Field(
        0.2, gt=0, le=1, description="How far the chance of an action may move at once."
    )
    entropy: float = Field(0.0, ge=0, description="Weight of the entropy of the actions.")
    rounds: int = Field(30, ge=1, description="Number of times that the policy plays and learns.")
    copies: int = Field(8, ge=1, le=1024, description="Environments that are played side by side.")
    steps: int = Field(128, ge=1, description="Steps of each environment in a round.")
    epochs: int = Field(4, ge=1, description="How often the steps of a round are learned from.")
    batch: int = Field(256, ge=1, description="Steps of an update.")
    episodes: int = Field(10, ge=1, description="Episodes that are played to measure the policy.")


class Policy(nn.Module):
    """Scores of the actions, and the expected return."""

    def __init__(self, settings: PolicySettings, *, num_values: int, num_actions: int) -> None:
        """Build both with PyTorch's default initialisation, and actions about equally likely."""
        super().__init__()
        layers = settings.model_dump(include={"hidden_width", "num_layers", "activation"})
        self.actor = MLP(input_shape=(num_values,), num_outputs=num_actions, **layers)
        self.critic = MLP(input_shape=(num_values,), num_outputs=1, **layers)
        last = self.actor.layers[-1]
        assert isinstance(last, nn.Linear)
        with torch.no_grad():
            last.weight.mul_(0.01)
            last.bias.zero_()

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Map (batch, values) to the scores (batch, actions) and the expected returns (batch,)."""
        return self.actor(observations), self.critic(observations).squeeze(-1)


def train_policy(
    config: Mapping[str, Any], report: Callable[..., bool], folder: Path, seed: int
) -> None:
    """Learn a policy, keep it in the folder, and report its mean return each round.

    Args:
        config: The fields of `PolicySettings`.
        report: Receives `mean_return` of the most likely actions and the `frames` played so far,
            and returns whether to stop.
        folder: The folder of the policy. A later attempt continues from it.
        seed: Seed of everything random.

    Raises:
        ExperimentError: If a setting is not valid, or the environment has no numbered actions.
        MissingDependencyError: If the environment is one of Gymnasium, which is not installed.
    """
    settings = _checked(config)
    torch.manual_seed(seed)
    play = _Play(settings, seed)
    sizes = {"num_values": play.observations.shape[1], "num_actions": play.num_actions}
    policy = Policy(settings, **sizes)
    optimizer = torch.optim.Adam(policy.parameters(), lr=settings.lr, eps=1e-5)
    path = Path(folder) / POLICY
    done = 0
    if path.exists():
        kept = torch.load(path, weights_only=True)
        policy.load_state_dict(kept["policy"])
        optimizer.load_state_dict(kept["optimizer"])
        done = kept["rounds"]
    for number in range(done, settings.rounds):
        for group in optimizer.param_groups:
            group["lr"] = settings.lr * (1 - number / settings.rounds)
        _learn(policy, optimizer, play.round(policy), settings)
        result = mean_return(policy, settings, seed=_EVALUATION_SEED)
        states = {"policy": policy.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**states, **sizes, "rounds": number + 1}, path)
        frames = (number + 1) * settings.copies * settings.steps
        if report(step=number + 1, mean_return=result, frames=frames):
            return


def load_policy(path: str | Path, config: Mapping[str, Any]) -> Callable[[Any], int]:
    """Return a function that takes an observation and returns the most likely action.

    Args:
        path: The file `policy.pt`, in `files/` of a bundle.
        config: The configuration of the trial, with the options of `train`.
    """
    settings = _checked(config)
    kept = torch.load(path, weights_only=True)
    policy = Policy(settings, num_values=kept["num_values"], num_actions=kept["num_actions"])
    policy.load_state_dict(kept["policy"])
    return lambda observation: int(_act(policy, _flat(observation)[None])[0])


def _checked(config: Mapping[str, Any]) -> PolicySettings:
    try:
        return PolicySettings.model_validate(dict(config))
    except ValidationError as error:
        raise refusal(error, at="search") from error


def make_environment(name: str) -> Environment:
    """Return an environment.

    Args:
        name: module:Class, or an id of Gymnasium.

    Raises:
        ExperimentError: If there is no such environment, or it has no numbered actions.
        MissingDependencyError: If Gymnasium is not installed.
    """
    if ":" in name:
        made = load_object(name, field="train.environment")()
    else:
        try:
            import gymnasium  # pyright: ignore[reportMissingImports]
        except ModuleNotFoundError as error:
            raise MissingDependencyError(
                f"{name} is an environment of Gymnasium, which is not installed",
                next_step=f"Install it: {install_command('policies')}, or write module:Class.",
            ) from error
        try:
            made = gymnasium.make(name)
        except gymnasium.error.Error as error:
            raise ExperimentError(str(error), field="train.environment") from error
    for method in ("reset", "step"):
        if not callable(getattr(made, method, None)):
            raise ExperimentError(
                f"{name} has no method {method}",
                field="train.environment",
                allowed="a class with reset and step, as Gymnasium defines them",
            )
    if not isinstance(getattr(getattr(made, "action_space", None), "n", None), int | np.integer):
        raise ExperimentError(
            f"{name} has no number of actions",
            field="train.environment",
            allowed="an environment whose action_space has n, the number of actions",
        )
    return made


@dataclass(frozen=True)
class _Steps:
    """The steps of a round, flat."""

    observations: Tensor
    actions: Tensor
    chances: Tensor
    advantages: Tensor
    returns: Tensor


class _Play:
    """Copies of an environment, each in the middle of an episode."""

    def __init__(self, settings: PolicySettings, seed: int) -> None:
        self._settings = settings
        self._copies = [make_environment(settings.environment) for _ in range(settings.copies)]
        first = [copy.reset(seed=seed + number)[0] for number, copy in enumerate(self._copies)]
        self.observations = np.stack([_flat(observation) for observation in first])
        self.num_actions = int(self._copies[0].action_space.n)

    def round(self, policy: Policy) -> _Steps:
        """Play a round, and return its steps with the advantage of each action."""
        settings = self._settings
        shape = (settings.steps, settings.copies)
        observations = np.zeros((*shape, self.observations.shape[1]), dtype=np.float32)
        rewards, continues = np.zeros(shape, dtype=np.float32), np.ones(shape, dtype=np.float32)
        actions, chances, values = (torch.zeros(shape) for _ in range(3))
        for step in range(settings.steps):
            observations[step] = self.observations
            with torch.no_grad():
                scores, values[step] = policy(torch.from_numpy(self.observations))
            drawn = torch.distributions.Categorical(logits=scores)
            actions[step] = action = drawn.sample()
            chances[step] = drawn.log_prob(action)
            for number, chosen in enumerate(action.tolist()):
                rewards[step, number], continues[step, number] = self._step(policy, number, chosen)
        with torch.no_grad():
            last = policy(torch.from_numpy(self.observations))[1]
        advantages = generalised_advantages(
            torch.from_numpy(rewards),
            torch.cat([values, last[None]]),
            torch.from_numpy(continues),
            discount=settings.discount,
            trace=settings.trace,
        )
        return _Steps(
            torch.from_numpy(observations).flatten(0, 1),
            actions.flatten().long(),
            chances.flatten(),
            advantages.flatten(),
            (advantages + values).flatten(),
        )

    def _step(self, policy: Policy, number: int, action: int) -> tuple[float, float]:
        """Play one step of a copy.

        Returns:
            The reward, and 1.0 if the episode continues, or 0.0 if the next step starts another.
        """
        copy = self._copies[number]
        seen, reward, has_ended, is_cut_off, _ = copy.step(action)
        reward = float(reward)
        # The episode was cut off but would have continued, so add the expected rest of the return.
        if is_cut_off and not has_ended:
            with torch.no_grad():
                worth = policy.critic(torch.from_numpy(_flat(seen)[None]))
            reward += self._settings.discount * float(worth)
        if has_ended or is_cut_off:
            seen = copy.reset()[0]
        self.observations[number] = _flat(seen)
        return reward, float(not (has_ended or is_cut_off))


def generalised_advantages(
    rewards: Tensor, values: Tensor, continues: Tensor, *, discount: float, trace: float
) -> Tensor:
    """Return how much better each action was than expected, by the rewards that followed.

    Args:
        rewards: (steps, copies).
        values: The expected return before each step, and after the last one: (steps + 1, copies).
        continues: 0 if an episode ends with a step, or else 1.
        discount: Worth of a reward that comes one step later.
        trace: Weight of later steps, from 0 to 1.
    """
    advantages = torch.zeros_like(rewards)
    later = torch.zeros_like(rewards[0])
    for step in reversed(range(len(rewards))):
        surprise = rewards[step] + discount * continues[step] * values[step + 1] - values[step]
        later = surprise + discount * trace * continues[step] * later
        advantages[step] = later
    return advantages


def _learn(
    policy: Policy, optimizer: torch.optim.Optimizer, played: _Steps, settings: PolicySettings
) -> None:
    for _ in range(settings.epochs):
        for places in torch.randperm(len(played.actions)).split(settings.batch):
            scores, values = policy(played.observations[places])
            drawn = torch.distributions.Categorical(logits=scores)
            ratio = (drawn.log_prob(played.actions[places]) - played.chances[places]).exp()
            advantages = played.advantages[places]
            advantages = (advantages - advantages.mean()) / (advantages.std(correction=0) + 1e-8)
            limited = ratio.clamp(1 - settings.clip, 1 + settings.clip)
            gain = torch.minimum(ratio * advantages, limited * advantages).mean()
            missed = functional.mse_loss(values, played.returns[places])
            loss = 0.5 * missed - gain - settings.entropy * drawn.entropy().mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            optimizer.step()


def mean_return(policy: Policy, settings: PolicySettings, *, seed: int) -> float:
    """Return the mean sum of the rewards of whole episodes with the most likely actions.

    Args:
        policy: The policy that acts.
        settings: The environment and the number of episodes.
        seed: Seed of the first episode. The next episodes use the next seeds.
    """
    copies = [make_environment(settings.environment) for _ in range(settings.episodes)]
    seen = np.stack(
        [_flat(copy.reset(seed=seed + number)[0]) for number, copy in enumerate(copies)]
    )
    total, playing = 0.0, list(range(len(copies)))
    while playing:
        actions = _act(policy, seen[playing])
        still: list[int] = []
        for number, action in zip(playing, actions.tolist(), strict=True):
            observation, reward, has_ended, is_cut_off, _ = copies[number].step(action)
            seen[number] = _flat(observation)
            total += float(reward)
            if not (has_ended or is_cut_off):
                still.append(number)
        playing = still
    return total / len(copies)


def _act(policy: Policy, observations: np.ndarray) -> Tensor:
    with torch.no_grad():
        return policy.actor(torch.from_numpy(np.asarray(observations, dtype=np.float32))).argmax(
            dim=-1
        )


def _flat(observation: Any) -> np.ndarray:
    return np.asarray(observation, dtype=np.float32).reshape(-1)
