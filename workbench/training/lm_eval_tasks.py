"""Measures a language model on tasks of lm_eval while it trains.

lm_eval reads the tasks, writes the prompts and computes the metrics. The model is the one that
trains, under any strategy: all workers compute the same requests together. This module needs the
package lm_eval, so it is imported only if the data names tasks.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from lm_eval.api.model import TemplateLM  # pyright: ignore[reportMissingImports]
from lm_eval.evaluator import evaluate  # pyright: ignore[reportMissingImports]
from lm_eval.tasks import TaskManager  # pyright: ignore[reportMissingImports]
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window  # pyright: ignore[reportMissingImports]
from torch import Tensor

from workbench.data.splits import LanguageTasks
from workbench.experiment.goals import Goal
from workbench.experiment.metric_declarations import LANGUAGE_TASK
from workbench.foundation.errors import ExperimentError, first_line_of
from workbench.hardware.performance.memory import SCORES_AT_ONCE
from workbench.training.strategies.strategy import Strategy, Worker

_FIELD = "data.lm_eval"
_NUM_BOOTSTRAPS = 1000
"""How often lm_eval resamples metrics whose standard error has no formula, such as F1."""
_MOST_WRITTEN = 256
"""The most tokens of an answer if its task sets no limit, as in lm_eval's own models."""
_LIMITS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""What tasks call the most tokens of an answer. The first one counts."""
_FEWSHOT_SEED = 1234
"""The seed with which lm_eval draws the examples of a prompt by default."""


class LanguageTaskMeter:
    """Tasks of lm_eval that a training repeats at each evaluation.

    Attributes:
        goals: The directions of the metrics, by the name under which they are reported.
    """

    def __init__(self, tasks: LanguageTasks, wanted: Iterable[str] = ()) -> None:
        """Load the tasks and their samples.

        Args:
            tasks: The tasks.
            wanted: Metrics that objectives and constraints need.

        Raises:
            ExperimentError: If a task cannot be loaded, or none of them measures a wanted metric.
        """
        logging.getLogger("lm_eval").setLevel(logging.ERROR)
        self._tasks = tasks
        self._loaded = _load(tasks)
        for task in self._loaded["tasks"].values():
            if tasks.num_shots is not None:
                task.set_config(key="num_fewshot", value=tasks.num_shots)
            elif task.get_config("num_fewshot") is None:
                task.set_config(key="num_fewshot", value=0)
            task.set_fewshot_seed(seed=_FEWSHOT_SEED)
        self.goals = _goals_of(self._loaded["tasks"])
        self._check_wanted(wanted)

    def _check_wanted(self, wanted: Iterable[str]) -> None:
        groups = tuple(f"{LANGUAGE_TASK}{name}_" for name in self._loaded["groups"])
        for metric in wanted:
            if not metric.startswith(LANGUAGE_TASK) or metric.startswith(groups):
                continue
            if metric not in self.goals:
                raise ExperimentError(
                    f"no task of lm_eval measures {metric!r}",
                    field=_FIELD,
                    allowed=sorted(self.goals),
                )

    def measure(self, strategy: Strategy, worker: Worker, *, batch: int) -> dict[str, float]:
        """Measure all tasks. All workers must call it.

        Args:
            strategy: Holds the model.
            worker: Which worker this is.
            batch: The most requests that are computed at once.

        Returns:
            The metrics and their standard errors, by the name under which they are reported.
        """
        model = _TrainedModel(strategy, worker, self._tasks, batch=batch)
        strategy.train(False)
        try:
            answer = evaluate(
                model,
                self._loaded,
                limit=self._tasks.limit,
                bootstrap_iters=_NUM_BOOTSTRAPS,
                log_samples=False,
                apply_chat_template=self._tasks.uses_chat,
                fewshot_as_multiturn=self._tasks.uses_chat,
            )
        finally:
            strategy.train(True)
        assert answer is not None  # each worker computes all requests
        results: dict[str, Any] = {**answer.get("groups", {}), **answer.get("results", {})}
        return dict(_values_of(results))


def _load(tasks: LanguageTasks) -> Any:
    folder = None if tasks.folder is None else str(tasks.folder.expanduser())
    try:
        return _manager_of(tasks.names, folder).load(list(tasks.names))
    except Exception as error:  # of lm_eval, of datasets, and of the code of a task
        raise ExperimentError(
            f"the tasks {', '.join(tasks.names)} cannot be loaded: {first_line_of(error)}",
            field=_FIELD,
            next_step=(
                "`lm_eval ls tasks` lists the names. Most tasks download their samples from the"
                " Hugging Face hub; data.lm_eval_folder is a folder with your own tasks."
            ),
        ) from error


@functools.lru_cache(maxsize=1)
def _manager_of(names: tuple[str, ...], folder: str | None) -> TaskManager:
    """Return the index of all tasks. It reads thousands of files, so trials share it.

    If the folder of the user has all tasks, only that is read.
    """
    if folder is not None:
        own = TaskManager(include_path=folder, include_defaults=False)
        if set(names) <= set(own.all_tasks):
            return own
    return TaskManager(include_path=folder)


def _goals_of(tasks: Mapping[str, Any]) -> dict[str, Goal]:
    goals: dict[str, Goal] = {}
    for task_name, task in tasks.items():
        filters = [item.name for item in task._filters]
        for metric, is_higher_better in task.higher_is_better().items():
            for filter_name in filters:
                goal: Goal = "maximize" if is_higher_better else "minimize"
                goals[_name_of(task_name, metric, filter_name)] = goal
    return goals


def _values_of(results: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield names and values. lm_eval writes `acc,none` and `acc_stderr,none`, or N/A."""
    for task_name, metrics in results.items():
        for key, value in metrics.items():
            metric, comma, filter_name = key.partition(",")
            if comma and isinstance(value, (int, float, np.number)):
                yield _name_of(task_name, metric, filter_name), float(value)


def _name_of(task: str, metric: str, filter_name: str) -> str:
    ending = "" if filter_name == "none" else f"_{filter_name}"
    return f"{LANGUAGE_TASK}{task}_{metric}{ending}"


class _TrainedModel(TemplateLM):
    """The model of a training, as lm_eval calls models."""

    def __init__(
        self, strategy: Strategy, worker: Worker, tasks: LanguageTasks, *, batch: int
    ) -> None:
        super().__init__()
        self.tokenizer = tasks.tokenizer
        self._strategy = strategy
        self._worker = worker
        self._max_tokens = tasks.max_tokens
        self._batch = batch

    @property
    def eot_token_id(self) -> int:
        return int(self.tokenizer.eos_token_id)

    @property
    def prefix_token_id(self) -> int:
        first = self.tokenizer.bos_token_id
        return self.eot_token_id if first is None else int(first)

    @property
    def tokenizer_name(self) -> str:
        return str(self.tokenizer.name_or_path).replace("/", "__")

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        return self.tokenizer.apply_chat_template(
            chat_history,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt,
        )

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **kwargs: Any
    ) -> list[int]:
        if add_special_tokens is None:
            # A chat template has already written the first token.
            add_special_tokens = not string.startswith(self.tokenizer.decode(self.prefix_token_id))
        return self.tokenizer.encode(string, add_special_tokens=add_special_tokens)

    def _loglikelihood_tokens(
        self, requests: list[tuple[Any, list[int], list[int]]], **kwargs: Any
    ) -> list[tuple[float, bool]]:
        """Return the log-likelihood of each continuation, and whether it is the most likely one."""
        # If a request is too long, its beginning is cut, as lm_eval's own models do.
        rows = [
            ((context + wanted)[-self._max_tokens - 1 :], min(len(wanted), self._max_tokens))
            for _, context, wanted in requests
        ]
        # Rows of similar length need little padding.
        order = sorted(range(len(rows)), key=lambda place: (-len(rows[place][0]), rows[place]))
        answers: list[tuple[float, bool]] = [(0.0, True)] * len(rows)
        for places in self._batches(order, rows):
            for place, answer in zip(
                places, self._score([rows[place] for place in places]), strict=True
            ):
                answers[place] = answer
        return answers

    def _batches(
        self, order: Sequence[int], rows: Sequence[tuple[list[int], int]]
    ) -> Iterator[list[int]]:
        """Divide rows, from the longest, such that the scores of a batch fit in memory."""
        most_scores = max(1, SCORES_AT_ONCE // len(self.tokenizer))
        batch: list[int] = []
        for place in order:
            grown = [*batch, place]
            is_full = len(grown) > self._batch
            if batch and (is_full or len(grown) * _num_scores(grown, rows) > most_scores):
                yield batch
                grown = [place]
            batch = grown
        if batch:
            yield batch

    def _score(self, rows: Sequence[tuple[list[int], int]]) -> list[tuple[float, bool]]:
        """Return log-likelihoods and whether continuations are the most likely ones."""
        length = max(len(tokens) for tokens, _ in rows) - 1
        num_scores = _num_scores(range(len(rows)), rows)
        padded = torch.zeros(len(rows), length, dtype=torch.int64)
        for row, (tokens, _) in zip(padded, rows, strict=True):
            row[: len(tokens) - 1] = torch.tensor(
                tokens[:-1]
            )  # a causal model ignores what follows
        scores = self._scores(padded, num_scores)
        measured = None
        if scores is not None:
            first = length - num_scores
            measured = [
                _likelihood(
                    scores[number, len(tokens) - 1 - num_wanted - first :][:num_wanted],
                    tokens[-num_wanted:],
                )
                for number, (tokens, num_wanted) in enumerate(rows)
            ]
        return self._agreed(measured)

    def _scores(self, tokens: Tensor, num_scores: int) -> Tensor | None:
        """Return the scores at the last positions of each row, on the worker that has them."""
        outputs = self._strategy.predict(
            {"input_ids": tokens.to(self._worker.device), "num_scores": num_scores}
        )
        return None if outputs is None else outputs.logits[:, -num_scores:].float()

    def _agreed(self, own: Any) -> Any:
        """Return the answer of the first worker that has one, so that all continue alike."""
        return next(item for item in self._worker.group.gather(own) if item is not None)

    def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> list[float]:
        totals = []
        for (text,) in (request.args for request in requests):
            windows = get_rolling_token_windows(
                token_list=self.tok_encode(text),
                prefix_token=self.prefix_token_id,
                max_seq_len=self._max_tokens,
                context_len=1,
            )
            pairs = [(None, *make_disjoint_window(window)) for window in windows]
            totals.append(sum(score for score, _ in self._loglikelihood_tokens(pairs)))
        return totals

    def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
        return [self._write(*request.args) for request in requests]

    def _write(self, prompt: str, options: Mapping[str, Any]) -> str:
        """Continue a prompt by the most likely token, until a text that ends it."""
        if options.get("do_sample") and options.get("temperature", 1.0):
            raise ExperimentError(
                "a task of lm_eval draws answers at random, but the model always writes the most"
                " likely token",
                field=_FIELD,
                next_step="Set do_sample: false in its generation_kwargs, or leave the task out.",
            )
        until = options.get("until") or []
        endings = [until] if isinstance(until, str) else [item for item in until if item]
        given = [options[name] for name in _LIMITS if options.get(name) is not None]
        num_left = int(given[0]) if given else _MOST_WRITTEN
        num_kept = max(1, self._max_tokens - num_left)
        tokens = torch.tensor([self.tok_encode(prompt)[-num_kept:]])
        written: list[int] = []
        text = ""
        while len(written) < num_left and not any(item in text for item in endings):
            scores = self._scores(tokens[:, -self._max_tokens :], 1)
            token = self._agreed(None if scores is None else int(scores[0, -1].argmax()))
            if token == self.eot_token_id:
                break
            written.append(token)
            tokens = torch.cat([tokens, torch.tensor([[token]])], dim=1)
            text = self.tokenizer.decode(written, skip_special_tokens=True)
        for ending in endings:
            text = text.split(ending)[0]
        return text


def _num_scores(places: Iterable[int], rows: Sequence[tuple[list[int], int]]) -> int:
    """Return how many last positions of padded rows have the scores of all continuations."""
    chosen = [rows[place] for place in places]
    length = max(len(tokens) for tokens, _ in chosen)
    return max(length - len(tokens) + num_wanted for tokens, num_wanted in chosen)


def _likelihood(scores: Tensor, wanted: Sequence[int]) -> tuple[float, bool]:
    """Return the log-likelihood of tokens, in nats, and whether each has the highest score."""
    targets = torch.tensor(wanted, device=scores.device)
    chosen = scores.log_softmax(dim=-1).gather(-1, targets[:, None])
    return float(chosen.sum()), bool((scores.argmax(dim=-1) == targets).all())
