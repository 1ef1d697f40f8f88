from __future__ import annotations

from workbench.foundation.errors import ArgumentError
from workbench.foundation.validation_errors import closest


def test_of_many_names_only_the_closest_to_a_typo_are_listed() -> None:
    known = [*(f"setting_{number}" for number in range(50)), "epochs", "epoch_size"]
    allowed, meant = closest("epoch", known)
    assert allowed == "epochs, epoch_size and 50 others"
    assert meant == "Did you mean epochs?"


def test_a_name_with_a_comma_is_listed_in_quotes() -> None:
    allowed, meant = closest("price, totl", ["city", "price, total"])
    assert allowed == "city, 'price, total'"
    assert meant == "Did you mean 'price, total'?"
    assert ArgumentError("x", allowed=["city", "price, total"]).allowed == allowed


def test_few_names_are_listed_whole_and_so_are_many_where_none_is_close() -> None:
    assert closest("epoch", ["epochs", "lr"]) == ("epochs, lr", "Did you mean epochs?")
    known = [f"setting_{number}" for number in range(50)]
    assert closest("lgo", ["low", "high", "log", "choices", "step"])[1] == "Did you mean log?"
    assert closest("xyz", known) == (", ".join(known), None)
