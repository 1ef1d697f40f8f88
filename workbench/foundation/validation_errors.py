"""Translates errors of pydantic: which field is wrong, what is allowed there, and the next step.

All packages that validate user input against a type use this module.
"""

from __future__ import annotations

import difflib
import itertools
import json
import reprlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from workbench.foundation.errors import ExperimentError, WorkbenchError, quote_name
from workbench.foundation.python_values import not_held

_PLAIN_TAGS = frozenset(
    {
        "float",
        "int",
        "choice",
        "code-versions",
        "fixed",
        "constrained-int",
        "constrained-float",
        "metric-list",
        "metric-source",
        "workdir-name",
        "workdir-section",
    }
)
_ALLOWED = {
    "literal_error": "{expected}",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "greater_than": "a number greater than {gt:g}",
    "greater_than_equal": "a number greater than or equal to {ge:g}",
    "less_than": "a number less than {lt:g}",
    "less_than_equal": "a number less than or equal to {le:g}",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "string_too_short": "text of at least {min_length} characters",
    "string_too_long": "text of at most {max_length} characters",
    "too_short": "a list of at least {min_length}",
    "too_long": "a list of at most {max_length}",
    "tuple_type": "a list, such as [first, second]",
    "dict_type": "a mapping, such as {{name: value}}",
    "model_type": "a mapping, such as {{name: value}}",
}
_WRONG_SHAPES = frozenset({"tuple_type", "dict_type", "model_type"})


_MAX_LISTED = 12
"""If a name is unknown, all known names are listed, up to this many."""
_MAX_CLOSE = 5
_UNKNOWN_KEY = "unknown key"

# Limits the length of a wrong value in a message.
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 120
_SHORT.maxlevel = 3


@dataclass(frozen=True)
class Dialect:
    """The special features of a kind of documents.

    Attributes:
        kinds: The kinds of the items of a list, by the name of the list. They are not part of a
            path.
        other_names: Further accepted names of settings, anywhere in the document.
        tagged: The alternatives of unions, by their tags, to list their keys if one is unknown.
        elsewhere: What to write instead of a key of the whole document that other tools know. `...`
            is replaced by its value.
        examples: Example values of a place, by its path without numbers of items. The path of an
            item of a list ends with a dot.
        renamed: Our names for names and values of other tools, for required keys of a section. By
            the path of the section without numbers of items.
    """

    kinds: Mapping[str, Collection[str]] = field(default_factory=dict)
    other_names: Collection[str] = ()
    tagged: Mapping[str, type[BaseModel]] = field(default_factory=dict)
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    examples: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


PLAIN = Dialect()


class Checked(BaseModel):
    """A type whose constructor raises our error. Parts of other types are checked by these."""

    def __init__(self, /, **fields: Any) -> None:
        """Check and build it. The arguments are its fields.

        Raises:
            ExperimentError: If fields are wrong. The message lists all of them.
        """
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise refusal_of_all(error, type(self)) from error

    # With this mark, pydantic does not call `__init__` for parts of a document. Otherwise our error
    # would end the validation at the first wrong part, without its path.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]


def refusal(
    error: ValidationError, at: str | None = None, dialect: Dialect = PLAIN
) -> ExperimentError:
    """Return the first problem as an error of ours.

    Args:
        error: The error of pydantic.
        at: The dotted path of the checked value.
        dialect: The special features of the document.
    """
    first = findings(error, dialect=dialect)[0]
    return first.about(".".join(part for part in (at, first.field) if part) or None)


def refusal_of_all(
    error: ValidationError,
    root: type[BaseModel] | None = None,
    dialect: Dialect = PLAIN,
    rename: Callable[[ExperimentError], ExperimentError] = lambda error: error,
) -> ExperimentError:
    """Return all problems as one error of ours.

    Args:
        error: As in `findings`.
        root: As in `findings`.
        dialect: As in `findings`.
        rename: Returns an error about the name that the user wrote.
    """
    first, *others = map(rename, findings(error, root, dialect))
    if not others:
        return first
    # The allowed keys of a section can be long, so they are shown only once.
    shown = {first.allowed}
    listed = ""
    for other in others:
        if other.problem == _UNKNOWN_KEY and other.allowed in shown:
            other = _without_allowed(other)
        listed += f"\n  {other}"
        shown.add(other.allowed)
    return ExperimentError(
        first.problem,
        field=first.field,
        allowed=first.allowed,
        next_step=f"{first.next_step or ''} Also wrong:{listed}".lstrip(),
    )


def _without_allowed(error: ExperimentError) -> ExperimentError:
    return ExperimentError(error.problem, field=error.field, next_step=error.next_step)


def findings(
    error: ValidationError, root: type[BaseModel] | None = None, dialect: Dialect = PLAIN
) -> list[ExperimentError]:
    """Return everything that is wrong, one error for each field.

    Args:
        error: The error of pydantic.
        root: The checked type, to list its keys if one is unknown.
        dialect: The special features of the document.
    """
    wrong = error.errors(include_url=False)
    # A list with wrong parts is not too short because of them.
    wrong = [
        item for item in wrong if item["type"] != "too_short" or not _has_part(item["loc"], wrong)
    ]
    # A section may be `iid` or a mapping. If the mapping is wrong inside, nobody needs to hear that
    # it is not `iid`.
    wrong = [
        item
        for item in wrong
        if not _is_mapping_for_word(item) or not _has_other_reason(item, wrong)
    ]
    renamed = _renamed_keys(wrong, dialect)
    wrong = [
        item
        for item in wrong
        if item["type"] != "missing" or _location(item, dialect) not in renamed.values()
    ]
    explained: list[ExperimentError] = []
    for location, details in itertools.groupby(wrong, lambda item: _location(item, dialect)):
        if (meant := renamed.get(tuple(location))) is not None:
            explained.append(_explain_renamed(location, meant, next(details)["input"], dialect))
        else:
            explained.append(_explain(list(details), location, root, dialect))
    return explained


def _renamed_keys(wrong: list[ErrorDetails], dialect: Dialect) -> dict[tuple[str, ...], list[str]]:
    """Return the keys that have another name here, with the locations of the missing names."""
    missing = [_location(item, dialect) for item in wrong if item["type"] == "missing"]
    renamed: dict[tuple[str, ...], list[str]] = {}
    for item in wrong:
        # An error about the whole document has no location, so it could not be unpacked below.
        if item["type"] != "extra_forbidden":
            continue
        *section, name = location = _location(item, dialect)
        meant = [*section, dialect.renamed.get(_without_numbers(section), {}).get(name, "")]
        if meant in missing:
            renamed[tuple(location)] = meant
    return renamed


def _explain_renamed(
    location: list[str], meant: list[str], value: Any, dialect: Dialect
) -> ExperimentError:
    """Explain a key that has another name here."""
    ours = dialect.renamed[_without_numbers(location[:-1])]
    if isinstance(value, str):
        value = ours.get(value, value)
    next_step = f"Write {meant[-1]}."
    if isinstance(value, str | int | float) and len(str(value)) <= _SHORT.maxstring:
        next_step = f"Write {meant[-1]}: {value}."
    return ExperimentError(
        f"{location[-1]} is called {meant[-1]} here",
        field=".".join(location),
        next_step=next_step,
    )


def _without_numbers(location: Sequence[str]) -> str:
    """Return a path without the numbers of items."""
    return ".".join(part for part in location if not part.isdigit())


def _has_part(place: tuple[int | str, ...], wrong: list[ErrorDetails]) -> bool:
    """Return whether something within a location is wrong."""
    return any(
        len(item["loc"]) > len(place) and item["loc"][: len(place)] == place for item in wrong
    )


def _is_mapping_for_word(details: ErrorDetails) -> bool:
    return details["type"] == "literal_error" and isinstance(details["input"], Mapping)


def _has_other_reason(details: ErrorDetails, wrong: list[ErrorDetails]) -> bool:
    """Return whether another alternative at the same location explains more."""
    place = details["loc"][:-1]
    return any(
        item["type"] != "literal_error" and item["loc"][: len(place)] == place for item in wrong
    )


def _location(details: ErrorDetails, dialect: Dialect) -> list[str]:
    parts = [str(part) for part in details["loc"]]
    if len(parts) > 2 and parts[2] in dialect.kinds.get(parts[0], ()):
        del parts[2]  # the kind is not part of the document's path
    # A key may look like pydantic's additions. Then it is the last part.
    return [part for part in parts if part not in _PLAIN_TAGS and "[" not in part] or parts[-1:]


def _explain(
    wrong: list[ErrorDetails], location: list[str], root: type[BaseModel] | None, dialect: Dialect
) -> ExperimentError:
    """Explain the errors at one location. Several errors are alternatives that all failed."""
    field, first = ".".join(location) or None, wrong[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, WorkbenchError):
        if field:
            cause = cause.at(field)
        return ExperimentError(
            cause.problem, field=cause.field, allowed=cause.allowed, next_step=cause.next_step
        )
    if first["type"] == "extra_forbidden":
        section = _section_of(location[:-1], root)
        if len(first["loc"]) > 1:
            section = dialect.tagged.get(str(first["loc"][-2]), section)
        return _unknown_key(location, first["input"], section, root, dialect)
    if first["type"].startswith("union_tag"):
        tag = str(first.get("ctx", {}).get("discriminator", "")).strip("'")
        place = ".".join(part for part in (field, tag) if part)
        return ExperimentError(
            "unknown or missing", field=place, allowed=sorted(dialect.kinds.get(location[0], ()))
        )
    place = _place_of_example(location)
    if first["type"] in _WRONG_SHAPES and place in dialect.examples:
        return ExperimentError(
            f"{_SHORT.repr(first['input'])} is not valid",
            field=field,
            allowed=dialect.examples[place],
        )
    if first["type"] == "missing":
        return _missing_key(location, _section_of(location, root))
    if all(item["type"] in _ALLOWED for item in wrong):
        alternatives = dict.fromkeys(
            _ALLOWED[item["type"]].format(**item.get("ctx", {})) for item in wrong
        )
        allowed = ", or ".join(alternatives)
        return ExperimentError(
            f"{_SHORT.repr(first['input'])} is not valid", field=field, allowed=allowed
        )
    if first["type"] == "invalid-json-value":
        return not_held(first["input"], field)
    message = first["msg"].removeprefix("Value error, ")
    got = _SHORT.repr(first["input"])
    return ExperimentError(f"{message[0].lower()}{message[1:]}, got {got}", field=field)


def _place_of_example(location: list[str]) -> str:
    """Return the key of a location in `Dialect.examples`: "objectives." for an item of the list."""
    place = _without_numbers(location)
    if location and location[-1].isdigit():
        place += "."
    return place


def _section_of(location: list[str], root: type[BaseModel] | None) -> Any:
    """Return the type of the value at a location, or None if it is not known."""
    section: Any = root
    for part in location:
        if part.isdigit():
            section = next(iter(get_args(section)), None)
        elif get_origin(section) is dict:  # the user chooses the names of the parts, such as links
            section = get_args(section)[1]
        elif _is_section(section) and part in section.model_fields:
            section = section.model_fields[part].annotation
        else:
            return None
    return section


def _missing_key(location: list[str], wanted: Any) -> ExperimentError:
    allowed = None
    if get_origin(wanted) is Literal:
        allowed = map(str, get_args(wanted))
    return ExperimentError(
        "missing", field=".".join(location), allowed=allowed, next_step=f"Add {location[-1]}."
    )


def _unknown_key(
    location: list[str], value: Any, section: Any, root: type[BaseModel] | None, dialect: Dialect
) -> ExperimentError:
    field = ".".join(location)
    if not _is_section(section):
        return ExperimentError(_UNKNOWN_KEY, field=field, next_step="Remove it.")
    if len(location) == 1 and (instead := _instead_of(field, value, section, dialect)) is not None:
        return ExperimentError(_UNKNOWN_KEY, field=field, next_step=f"Write {instead}.")
    keys = list(section.model_fields)
    allowed, meant = closest(location[-1], keys, dialect.other_names)
    if meant is None and root is not None and len(location) == 2:
        instead = _instead_of(location[-1], value, root, dialect)
        if instead is not None:
            meant = f"Write {instead}."
        elif location[-1] in root.model_fields:
            meant = f"Write it outside of {location[0]}, at the top level."
    return ExperimentError(
        _UNKNOWN_KEY, field=field, allowed=allowed, next_step=meant or "Remove it."
    )


def _instead_of(name: str, value: Any, root: type[BaseModel], dialect: Dialect) -> str | None:
    """Return what to write instead of a key that belongs into a section, or to another tool."""
    if name in dialect.elsewhere:
        written = dialect.elsewhere[name]
    else:
        kinds: dict[str, Any] = {
            section: info.annotation for section, info in root.model_fields.items()
        }
        sections = [
            section
            for section, kind in kinds.items()
            if _is_section(kind) and name in kind.model_fields
        ]
        if len(sections) != 1:
            return None
        written = f"{sections[0]}: {{{name}: ...}}"
    is_plain = isinstance(value, str | int | float) and len(str(value)) <= _SHORT.maxstring
    if not is_plain:
        return written
    return written.replace("...", json.dumps(value))


def closest(
    name: str, known: Sequence[str], other_names: Collection[str] = ()
) -> tuple[str, str | None]:
    """Return the known names to list for an unknown one, and whether the closest was meant.

    Args:
        name: The unknown name.
        known: The known names. If there are many, only the closest are listed, unless none is
            close.
        other_names: More accepted names, which are not listed.

    Returns:
        The names as text, and the question whether the closest was meant, or None.
    """
    close = difflib.get_close_matches(name, [*known, *other_names], n=_MAX_CLOSE)
    # Two swapped letters are a single typo, but difflib counts two.
    close.sort(key=lambda candidate: sorted(candidate) != sorted(name))
    listed = [candidate for candidate in close if candidate in known]
    if len(known) <= _MAX_LISTED or not listed:
        allowed = ", ".join(map(quote_name, known))
    else:
        allowed = f"{', '.join(map(quote_name, listed))} and {len(known) - len(listed)} others"
    if not close:
        return allowed, None
    return allowed, f"Did you mean {quote_name(close[0])}?"


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
