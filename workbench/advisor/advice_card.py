"""The advice card for web pages and notebooks: its parts as values, and the card as HTML.

`advice_lines` provides the words, and writes the same card for a terminal.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from workbench.advisor.advice_lines import (
    HEADLINE,
    compare,
    describe_cost,
    describe_exchanges,
    describe_noise,
    describe_other,
    describe_rejected,
    goal_of,
    has_same_plan,
    reasons_of,
    rows_of,
    yaml_lines,
)
from workbench.advisor.stored_advice import Estimate, finite, mapping, texts

_UNKNOWN = "not predicted"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class CardFact(_Part):
    """A name and a text."""

    name: str
    text: str


class CardGain(_Part):
    """How many times better the advice is than the experiment without it."""

    factor: float
    low: float = Field(description="The lower end of the 90 % interval.")
    high: float = Field(description="The upper end of the 90 % interval.")
    words: str = Field(description="What is better by this factor.")


class CardOther(_Part):
    """Another plan, and what it would cost to use it."""

    name: str
    plan: str
    compared: str


class AdviceCard(_Part):
    """Advice in parts."""

    goal: str = Field(description="The goal of the advice.")
    headline: tuple[CardFact, ...] = Field(description="The settings to use, the batch first.")
    rejected: tuple[str, ...] = Field(
        description="The plan that seemed the fastest, and why it is not recommended."
    )
    gain: CardGain | None
    predicted: tuple[CardFact, ...]
    why: tuple[str, ...]
    others: tuple[CardOther, ...] = Field(
        description="The runner-up, and the experiment without advice."
    )
    exchanges: tuple[str, ...] = Field(
        description="Other ways to exchange gradients, and their speed."
    )
    measured: tuple[str, ...]
    would_change: tuple[str, ...]
    settings: tuple[str, ...] = Field(description="What to write into the experiment, as YAML.")
    changes: dict[str, Any] = Field(description="The same by dotted path.")


def card_of(advice: Mapping[str, Any]) -> AdviceCard:
    """Return advice in parts.

    Args:
        advice: As `AdviceGiven` stores it. Parts without values are omitted.
    """
    choice = mapping(advice.get("choice"))
    reference = mapping(advice.get("reference"))
    facts = [CardFact(name=name, text=text) for name, text in rows_of(choice)]
    others = (("runner-up", mapping(advice.get("runner_up"))), ("without advice", reference))
    measured = texts(advice.get("measured"))
    if cost := describe_cost(advice):
        measured.append(f"measuring took {cost}")
    return AdviceCard(
        goal=goal_of(advice),
        headline=tuple(fact for fact in facts if fact.name in HEADLINE),
        rejected=tuple(describe_rejected(advice)),
        gain=_gain(choice, reference, str(advice.get("objective"))),
        predicted=(
            *(fact for fact in facts if fact.name not in HEADLINE and fact.text != _UNKNOWN),
            CardFact(name="noise scale", text=describe_noise(advice)),
        ),
        why=tuple(reasons_of(advice)),
        others=tuple(
            CardOther(
                name=name,
                plan=describe_other(other),
                compared=compare(other, choice, str(advice.get("objective"))),
            )
            for name, other in others
            if other
        ),
        exchanges=tuple(describe_exchanges(advice)),
        measured=tuple(measured),
        would_change=tuple(texts(advice.get("would_change"))),
        settings=tuple(yaml_lines(mapping(advice.get("settings")))),
        changes=dict(mapping(advice.get("settings"))),
    )


def _gain(
    choice: Mapping[str, Any], reference: Mapping[str, Any], objective: str
) -> CardGain | None:
    """Compare the times to the target if both are known, otherwise the samples per second.

    The same plan with another rate gains no samples per second. If the rate is also the same, there
    is no gain at all.
    """
    is_same = has_same_plan(choice, reference)
    is_same_training = is_same and finite(choice.get("lr")) == finite(reference.get("lr"))
    has_times = objective != "throughput" and not is_same_training
    times = (
        Estimate.of(reference.get("time_to_target_s")),
        Estimate.of(choice.get("time_to_target_s")),
    )
    speeds = Estimate.of(choice.get("samples_per_s")), Estimate.of(reference.get("samples_per_s"))
    for (better, worse), words, counts in (
        (times, "as fast to the target as without advice", has_times),
        (speeds, "the samples/s of the experiment without advice", not is_same),
    ):
        if counts and better is not None and worse is not None and min(better.low, worse.low) > 0:
            low, high = better.low / worse.high, better.high / worse.low
            return CardGain(factor=better.value / worse.value, low=low, high=high, words=words)
    return None


def html_of(advice: Mapping[str, Any]) -> str:
    """Write advice as HTML, for the output of a notebook cell.

    Args:
        advice: As `AdviceGiven` stores it.
    """
    card = card_of(advice)
    parts = [f"<p style='margin:0;opacity:.75'>Advice for {html.escape(card.goal)}</p>"]
    facts = "".join(
        f"<div><small style='opacity:.75'>{html.escape(fact.name)}</small><br>"
        f"<b style='font-size:1.25em'>{html.escape(fact.text)}</b></div>"
        for fact in card.headline
    )
    parts.append(
        f"<div style='display:flex;flex-wrap:wrap;gap:4px 28px;margin:4px 0 8px'>{facts}</div>"
    )
    if card.rejected:
        rejected = ", ".join(map(html.escape, card.rejected))
        parts.append(f"<p style='margin:0 0 8px'>Fastest plan: {rejected}</p>")
    if card.gain is not None:
        parts.append(_bar(card.gain))
    parts.append(_table([(fact.name, fact.text) for fact in card.predicted]))
    parts += _list("Why", card.why)
    parts += _list(
        "Alternatives", [f"{other.name}: {other.plan}. {other.compared}" for other in card.others]
    )
    parts += _list("Exchanges between workers", card.exchanges)
    parts += _list("Uncertain", card.would_change)
    if card.settings:
        parts.append(
            "<details style='margin:6px 0 0'><summary>The settings as YAML</summary><pre"
            f" style='margin:6px 0 0'>{html.escape(chr(10).join(card.settings))}</pre></details>"
        )
    return f"<div style='border-left:4px solid #0072b2;padding:6px 14px'>{''.join(parts)}</div>"


def _bar(gain: CardGain) -> str:
    """Draw the factor as a bar with its interval, and a line at the experiment without advice."""
    most = 1.1 * max(gain.high, gain.factor, 1.0)
    width, low, high, without = (
        100 * value / most for value in (gain.factor, gain.low, gain.high, 1.0)
    )
    span = f"left:{low:.1f}%;width:{high - low:.1f}%"
    return (
        f"<p style='margin:0'><b>{gain.factor:.2f} times</b> ({gain.low:.2f} to {gain.high:.2f})"
        f" {html.escape(gain.words)}</p><div"
        " style='position:relative;height:14px;max-width:420px;background:rgba(127,127,127,.2)'>"
        "<div style='position:absolute;inset:0 auto 0"
        f" 0;width:{width:.1f}%;background:#0072b2'></div><div"
        f" style='position:absolute;top:6px;height:2px;{span};background:#e69f00'></div><div"
        f" style='position:absolute;top:-2px;bottom:-2px;left:{without:.1f}%;border-left:2px"
        " dashed'></div></div>"
    )


def _table(rows: list[tuple[str, str]]) -> str:
    cells = "".join(
        f"<tr><th style='text-align:left;font-weight:400;opacity:.75'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(text)}</td></tr>"
        for name, text in rows
    )
    return f"<table>{cells}</table>"


def _list(title: str, texts: Sequence[str]) -> list[str]:
    if not texts:
        return []
    items = "".join(f"<li>{html.escape(text)}</li>" for text in texts)
    return [f"<p style='margin:6px 0 0'><b>{title}</b></p><ul style='margin:0'>{items}</ul>"]
