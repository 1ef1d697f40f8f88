"""Options of programs in C and C++, and the lines that they print, read from their source.

gflags, absl, cxxopts, CLI11, Boost.Program_options, argparse, and comparisons with `argv` by hand.
Files that a program includes are read with it: `program_source` joins them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from workbench.runs.scripts.declared_options import alternatives_in
from workbench.runs.scripts.script_options import ScriptOption, Way

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_NUMBER = r"[-+]?(?:\d[\d']*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_KINDS = {
    "float": "float",
    "double": "float",
    "real": "float",
    "bool": "bool",
    "string": "str",
    "std::string": "str",
}
_FLAG = re.compile(
    r"\bDEFINE_(?P<type>double|float|u?int\d+|bool|string)\s*\(\s*(?P<name>\w+)\s*,"
    r"\s*(?P<default>[^,]+),\s*\"(?P<text>[^\"]*)"
)
_ABSL = re.compile(
    r"\bABSL_FLAG\s*\(\s*(?P<type>[\w:]+)\s*,\s*(?P<name>\w+)\s*,\s*(?P<default>[^,]+),"
    r"\s*\"(?P<text>[^\"]*)"
)
_TYPED = re.compile(
    r"\(\s*\"(?P<names>[\w,-]+)\"\s*,(?:\s*\"(?P<before>[^\"]*)\"\s*,)?\s*"
    r"(?:\w+::)?value<(?P<type>[\w: ]+)>\([^()]*\)"
    r"(?:\s*->\s*default_value\s*\(\s*(?P<default>[^()]+)\))?"
    r"(?:[^\"()]*,\s*\"(?P<text>[^\"]*)\")?"
)
"""An option of cxxopts, whose help comes first, or of Boost."""
_ADDED = re.compile(
    r"\badd_(?:option|argument|flag)\s*(?:<[^>]*>)?\s*\(\s*(?P<names>(?:\"[\w,-]+\"\s*,?\s*)+)"
    r"(?P<rest>[^;]*);"
)
"""An option of CLI11 or argparse."""
_REGISTERED = re.compile(
    r"\b(?:register|declare|define)\w*(?:Param|Option|Arg|Flag)\w*\s*\(\s*\"(?P<name>\w+)\"\s*,"
    r"\s*\"(?P<text>[^\"]*)"
)
_COMPARED = re.compile(r"\"(?P<dashes>--?)(?P<name>[A-Za-z][\w-]*)\"")
_CONVERTED = re.compile(
    r"(?P<variable>[A-Za-z_][\w.>-]*?)\s*=\s*(?:\([^()]*\)\s*)?(?:std::|static_cast<[^>]*>\()?"
    r"(?P<call>atof|atoi|atol|strto\w+|sto\w+)\s*\("
)
_NEAR = 250
_SAYS_DEFAULT = re.compile(r"\bdefault(?:s to| is|\s*[:=])?\s*[\"'(]?(?P<value>[\w.+-]+)(?![\w,])")


def options_of_compiled(text: str) -> list[ScriptOption]:
    """Return the options that a program in C or C++ takes, in their order.

    Args:
        text: Its source, with what it includes.

    Example:
        >>> from workbench.runs.scripts.compiled_programs import options_of_compiled
        >>> source = 'DEFINE_double(lr, 0.1, "The rate."); DEFINE_int32(width, 8, "Units.");'
        >>> [(option.name, option.default, option.kind) for option in options_of_compiled(source)]
        [('lr', 0.1, 'float'), ('width', 8, 'int')]
    """
    text = _COMMENT.sub(_without_comment, text)
    for reader in (_of_flags, _of_typed, _of_added, _of_registered, _of_comparisons):
        options = {option.name: option for option in reader(text) if option.name != "help"}
        if options:
            return list(options.values())
    return []


def _without_comment(match: re.Match[str]) -> str:
    return match[0] if match[0].startswith("//") and _is_in_text(match) else " "


def _is_in_text(match: re.Match[str]) -> bool:
    """Return whether two slashes are in a text, as in "http://host"."""
    before = match.string[match.string.rfind("\n", 0, match.start()) + 1 : match.start()]
    return before.replace('\\"', "").count('"') % 2 == 1


def _of_flags(text: str) -> Iterator[ScriptOption]:
    for match in (*_FLAG.finditer(text), *_ABSL.finditer(text)):
        yield _option(match["name"], match["default"], match["type"], match["text"])


def _of_typed(text: str) -> Iterator[ScriptOption]:
    for match in _TYPED.finditer(text):
        said = match["before"] or match["text"] or ""
        yield _option(_longest(match["names"].split(",")), match["default"], match["type"], said)


def _of_added(text: str) -> Iterator[ScriptOption]:
    for match in _ADDED.finditer(text):
        names = re.findall(r"-{1,2}[\w-]+", match["names"])
        if not names:
            continue
        name, rest = _longest(names), match["rest"]
        default = re.search(r"default_val(?:ue|_str)?\s*\(\s*([^()]+)\)", rest)
        variable = re.match(r"\s*([A-Za-z_]\w*)\s*[,)]", rest)
        written = default[1] if default is not None else ""
        kind = ""
        if variable is not None:
            kind, initial = _declared(text, variable[1])
            written = written or initial
        said = re.search(r"\"([^\"]*)\"", rest.partition("default_val")[0])
        option = _option(name, written, kind, said[1] if said is not None else "")
        is_flag = "add_flag" in match[0] or "implicit_value(true)" in rest
        ways: dict[bool, Way] = {True: "switch", False: "apart"}
        yield ScriptOption(
            option.name,
            False if is_flag else option.default,
            option.choices,
            "bool" if is_flag else option.kind,
            ways[is_flag],
            text=option.text,
        )


def _of_registered(text: str) -> Iterator[ScriptOption]:
    way: Way = "apart" if re.search(r"\"--\"", text) else "single"
    for match in _REGISTERED.finditer(text):
        said = _SAYS_DEFAULT.search(match["text"])
        option = _option(match["name"], said["value"] if said else "", "", match["text"], way)
        is_required = re.search(r"\b(?:mandatory|required)\b", match["text"], re.IGNORECASE)
        yield replace(option, is_required=is_required is not None)


def _of_comparisons(text: str) -> Iterator[ScriptOption]:
    """Yield what a program compares with its words: `if (!strcmp(argv[i], "-rate")) rate = ...`."""
    if "argv" not in text and "args" not in text:
        return
    matches = list(_COMPARED.finditer(text))
    for match, following in zip(matches, [*matches[1:], None], strict=True):
        end = min(match.end() + _NEAR, following.start() if following else len(text))
        converted = _CONVERTED.search(text, match.end(), end)
        if converted is None:
            continue
        kind, written = _declared(text, re.split(r"->|\.", converted["variable"])[-1])
        is_real = converted["call"] in ("atof", "strtod", "strtof", "stof", "stod", "stold")
        way: Way = "single" if match["dashes"] == "-" else "apart"
        yield _option(match["name"], written, "double" if is_real else kind or "int", "", way)


def _longest(names: list[str]) -> str:
    return max(names, key=len).lstrip("-")


def _declared(text: str, variable: str) -> tuple[str, str]:
    """Return the type of a variable, and its first value as it is written."""
    declared = re.search(
        rf"\b(float|double|real|bool|u?int\d*(?:_t)?|unsigned|size_t|long|std::string|string)\s+"
        rf"(?:[\w, =.]*,\s*)?{re.escape(variable)}\b",
        text,
    )
    initial = re.search(rf"\b{re.escape(variable)}\s*(?:=|\{{|\()\s*({_NUMBER})f?\s*[;,)}}]", text)
    type_name = declared[1] if declared else ""
    first_value = initial[1] if initial else ""
    return type_name, first_value


def _option(
    name: str, written: str | None, declared: str, text: str, way: Way = "option"
) -> ScriptOption:
    """Return an option whose default and type are as the source writes them."""
    written = (written or "").strip().strip('"').rstrip("fFlLuU") if written != "false" else "false"
    number = re.fullmatch(_NUMBER, written or "")
    last = declared.strip().rpartition(" ")[2]
    kind = _KINDS.get(last, "int" if last else None)
    default: float | int | bool | None = None
    if kind == "bool":
        default = written == "true"
    elif number is not None:
        is_whole = re.fullmatch(r"[-+]?\d+", written) is not None and kind != "float"
        default = int(written) if is_whole else float(written.replace("'", ""))
        kind = kind or type(default).__name__
    if default is not None or not written:
        return ScriptOption(name, default, (), kind, way, text=text)
    return ScriptOption(name, written, alternatives_in(text, written), kind, way, text=text)


_MANIPULATES = re.compile(r"\b(?:endl|flush|setw|setprecision|fixed|setfill|left|right)\b")
_STREAM = re.compile(r"\bc(?:out|err)\s*<<(?P<parts>[^;]*);", re.DOTALL)
_FORMAT = re.compile(
    r"\b(?:f?printf|LOG_INFO|spdlog::info|fmt::print)\s*\((?:\s*std(?:out|err)\s*,)?"
    r"\s*(?P<texts>(?:\"(?:[^\"\\]|\\.)*\"\s*)+)"
)


def lines_of_compiled(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that a program in C or C++ prints, with `{:f}` for each value.

    Args:
        text: Its source, with what it includes.

    Returns:
        Where each line is in the source, and the line.

    Example:
        >>> from workbench.runs.scripts.compiled_programs import lines_of_compiled
        >>> list(lines_of_compiled('std::cout << "loss: " << loss << " acc: " << acc;'))
        [(5, 'loss: {:f} acc: {:f}')]
    """
    for match in _STREAM.finditer(text):
        line = ""
        for part in re.split(r"<<", match["parts"]):
            quoted = re.fullmatch(r"\s*\"((?:[^\"\\]|\\.)*)\"\s*", part)
            if quoted is not None:
                line += quoted[1]
            elif not _MANIPULATES.search(part):
                line += "{:f}"
        yield match.start(), _printed(line)
    for match in _FORMAT.finditer(text):
        line = "".join(re.findall(r"\"((?:[^\"\\]|\\.)*)\"", match["texts"]))
        line = line.replace("%c", " ")  # such as a carriage return
        line = re.sub(r"%%", "%", re.sub(r"%[-+ #0]*[\d.*]*(?:l|ll|z)?[dfieEgGsu]", "{:f}", line))
        yield match.start(), _printed(re.sub(r"\{[^{}]*\}", "{:f}", line))


def _printed(line: str) -> str:
    return line.replace("\\t", "\t").replace("\\n", "\n").replace("\\r", "\n").strip("\n")
