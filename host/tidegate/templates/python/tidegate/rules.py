"""What a rules file may set: each parameter is described once, and read by its description."""

import json
import re
import sys
from dataclasses import dataclass, field
from typing import Any, Callable


class RuleError(Exception):
    """One rule that makes no sense. Raise it from `configure` for what a description cannot say."""

    def __init__(self, key: str, message: str) -> None:
        """`key` is a path such as `rule[2].rate`, empty when it is the whole."""
        super().__init__(message)
        self.key = key
        self.message = message


@dataclass(frozen=True)
class Parameter:
    """One thing that a rules file may set. `default` is written as in a rules file."""

    kind: str
    summary: str
    required: bool
    default: Any
    read: Callable[[Any, str], Any]


@dataclass(frozen=True)
class Description:
    """What a policy is and what its rules may set."""

    name: str
    version: str
    summary: str
    parameters: dict[str, Parameter] = field(default_factory=dict)


def number(
    summary: str,
    *,
    required: bool = False,
    default: float | None = None,
    min: float = -sys.float_info.max,
    max: float = sys.float_info.max,
) -> Parameter:
    """A number, with or without a fraction, from `min` to `max`."""

    def read(value: Any, path: str) -> float:
        _expect(value, (int, float), "a number", path)
        return _within(value, min, max, path)

    return Parameter("number", summary, required, default, read)


def integer(
    summary: str,
    *,
    required: bool = False,
    default: int | None = None,
    min: int = -(2**63),
    max: int = 2**63 - 1,
) -> Parameter:
    """A whole number from `min` to `max`."""

    def read(value: Any, path: str) -> int:
        _expect(value, (int, float), "a whole number", path)
        if value != int(value):
            raise RuleError(path, f"must be a whole number, not {_show(value)}")
        return _within(int(value), min, max, path)

    return Parameter("integer", summary, required, default, read)


def boolean(summary: str, *, required: bool = False, default: bool | None = None) -> Parameter:
    """`true` or `false`."""

    def read(value: Any, path: str) -> bool:
        if not isinstance(value, bool):
            raise RuleError(path, f"must be `true` or `false`, not {_kind(value)}")
        return value

    return Parameter("boolean", summary, required, default, read)


def text(summary: str, *, required: bool = False, default: str | None = None) -> Parameter:
    """A string."""
    return Parameter("text", summary, required, default, _text)


def choice(summary: str, choices: list[str], *, required: bool = False, default: str | None = None) -> Parameter:
    """One of some words."""

    def read(value: Any, path: str) -> str:
        if _text(value, path) not in choices:
            raise RuleError(path, f"must be `{'` or `'.join(choices)}`, not `{value}`")
        return value

    return Parameter("text", summary, required, default, read)


_MILLIS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration(summary: str, *, required: bool = False, default: str | None = None) -> Parameter:
    """A duration such as `250ms`, `5s` or `1m30s`; read as milliseconds."""

    def read(value: Any, path: str) -> int:
        written = _text(value, path).strip()
        parts = re.findall(r"([0-9]+)([a-z]+)\s*", written)
        whole = re.fullmatch(r"(?:[0-9]+[a-z]+\s*)+", written)
        if not whole or any(unit not in _MILLIS for _, unit in parts):
            raise RuleError(path, f"`{value}` is no duration; write it such as `250ms`, `5s` or `1m30s`")
        return sum(int(count) * _MILLIS[unit] for count, unit in parts)

    return Parameter("duration", summary, required, default, read)


_BYTES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def size(summary: str, *, required: bool = False, default: str | None = None) -> Parameter:
    """A size such as `512KiB` or `64MiB`; read as bytes."""

    def read(value: Any, path: str) -> int:
        found = re.fullmatch(r"([0-9]+)\s*([A-Za-z]+)", _text(value, path).strip())
        if not found or found[2] not in _BYTES:
            raise RuleError(path, f"`{value}` is no size; write it such as `512KiB` or `64MiB`")
        return int(found[1]) * _BYTES[found[2]]

    return Parameter("size", summary, required, default, read)


def list_of(summary: str, item: Parameter | dict[str, Parameter], *, required: bool = False) -> Parameter:
    """An array whose items are each read as `item`, a parameter or a table of parameters; empty when it is left out."""

    def read(value: Any, path: str) -> list:
        if not isinstance(value, list):
            raise RuleError(path, f"must be an array, not {_kind(value)}")
        return [_read_item(item, entry, f"{path}[{place}]") for place, entry in enumerate(value)]

    return Parameter("list", summary, required, None if required else [], read)


def table(summary: str, parameters: dict[str, Parameter], *, required: bool = False) -> Parameter:
    """A table with the keys of `parameters`."""
    return Parameter("table", summary, required, None, lambda value, path: _read_table(parameters, value, path))


def named(summary: str, item: Parameter | dict[str, Parameter], *, required: bool = False) -> Parameter:
    """A table under names of the user's choice whose values are each read as `item`."""

    def read(value: Any, path: str) -> dict:
        _expect(value, dict, "a table", path)
        return {name: _read_item(item, entry, _path_of(path, name)) for name, entry in value.items()}

    return Parameter("table", summary, required, None, read)


def read_rules(parameters: dict[str, Parameter], rules: str) -> dict[str, Any]:
    """Reads the JSON object that the host gives. What is left out and has no default is `None`."""
    return _read_table(parameters, json.loads(rules), "")


def default_json(parameter: Parameter) -> str | None:
    """What holds when the file does not set it, for people to read."""
    if parameter.default is None or parameter.kind == "list":
        return None
    return json.dumps(parameter.default)


def _read_item(item: Parameter | dict[str, Parameter], value: Any, path: str) -> Any:
    return item.read(value, path) if isinstance(item, Parameter) else _read_table(item, value, path)


def _read_table(parameters: dict[str, Parameter], value: Any, path: str) -> dict[str, Any]:
    _expect(value, dict, "a table", path)
    for key in value:
        if key not in parameters:
            known = "`, `".join(parameters)
            raise RuleError(_path_of(path, key), f"unknown key; known here are `{known}`")
    rules = {}
    for key, parameter in parameters.items():
        found = value.get(key, parameter.default)
        if found is None and parameter.required:
            raise RuleError(_path_of(path, key), "is missing")
        rules[key] = None if found is None else parameter.read(found, _path_of(path, key))
    return rules


def _text(value: Any, path: str) -> str:
    _expect(value, str, "a string", path)
    return value


def _expect(value: Any, types: type | tuple[type, ...], what: str, path: str) -> None:
    # In Python a boolean is an int.
    if not isinstance(value, types) or isinstance(value, bool):
        raise RuleError(path, f"must be {what}, not {_kind(value)}")


def _within(value: Any, min: Any, max: Any, path: str) -> Any:
    if not min <= value <= max:
        raise RuleError(path, f"must be {_show(min)} to {_show(max)}, not {_show(value)}")
    return value


def _show(value: float) -> str:
    return str(int(value)) if abs(value) < 2**53 and value == int(value) else str(value)


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    kinds = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "an array"}
    return kinds.get(type(value), "a table")


def _path_of(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
