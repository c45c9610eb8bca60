"""What policies of every kind share: the lifecycle, the log, the clock, and how failures reach the host."""

import io
import random
import sys
import time
from typing import Any, Callable

from componentize_py_types import Err
from wit_world.exports import lifecycle as contract
from wit_world.imports import clock as host_clock
from wit_world.imports import log as host_log

from .rules import (
    Description,
    Parameter,
    RuleError,
    boolean,
    choice,
    default_json,
    duration,
    integer,
    list_of,
    named,
    number,
    read_rules,
    size,
    table,
    text,
)

__all__ = [
    "Description",
    "Parameter",
    "RuleError",
    "boolean",
    "choice",
    "clock",
    "duration",
    "integer",
    "list_of",
    "log",
    "named",
    "number",
    "size",
    "table",
    "text",
]


class log:
    """Lines for the people who run the host."""

    @staticmethod
    def debug(message: object) -> None:
        host_log.write(host_log.Level.DEBUG, str(message))

    @staticmethod
    def info(message: object) -> None:
        host_log.write(host_log.Level.INFO, str(message))

    @staticmethod
    def warn(message: object) -> None:
        host_log.write(host_log.Level.WARN, str(message))

    @staticmethod
    def error(message: object) -> None:
        host_log.write(host_log.Level.ERROR, str(message))


class clock:
    """Time and chance, the same for the whole of a call, so that a recorded decision replays exactly."""

    @staticmethod
    def now() -> int:
        """Milliseconds since the Unix epoch."""
        return host_clock.now()

    @staticmethod
    def elapsed() -> int:
        """Milliseconds of a clock that never goes back."""
        return host_clock.elapsed()

    @staticmethod
    def random() -> float:
        """A number from 0 up to but not including 1."""
        return (host_clock.random() >> 11) / 2**53


class _Lines(io.TextIOBase):
    """What is printed, line by line, to the log."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._begun = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._write(line)
        return len(text)


def _settle() -> None:
    """Gives Python's own names what the host gives: there is no other time, chance or output in a policy.

    Not when the module is imported, which happens when the component is built: the host is not there then.
    """
    sys.stdout = _Lines(log.info)
    sys.stderr = _Lines(log.error)
    time.time = lambda: host_clock.now() / 1_000
    time.monotonic = time.perf_counter = lambda: host_clock.elapsed() / 1_000
    random.random = clock.random


def lifecycle_of(policy: Any) -> type:
    """The `Lifecycle` that a policy's module has."""

    class Lifecycle:
        @told
        def describe(self) -> contract.Description:
            _settle()
            described = policy.describe()
            parameters = [
                contract.Parameter(
                    name,
                    contract.ParameterKind[parameter.kind.upper()],
                    parameter.required,
                    default_json(parameter),
                    parameter.summary,
                )
                for name, parameter in described.parameters.items()
            ]
            return contract.Description(described.name, described.version, described.summary, parameters)

        @told
        def configure(self, rules: str) -> None:
            _settle()
            policy.configure(read_rules(policy.describe().parameters, rules))

    return Lifecycle


def told(call: Callable) -> Callable:
    """`call`, whose exceptions are told in the log before they end the instance: nothing else would carry their text."""

    def telling(self: Any, *arguments: Any) -> Any:
        try:
            return call(self, *arguments)
        except Err:
            raise
        except RuleError as error:
            raise Err(contract.ConfigError(error.key, error.message)) from None
        except BaseException as error:
            log.error(f"{call.__name__}: {_trace(error)}")
            raise

    return telling


def _trace(error: BaseException) -> str:
    """The exception and where it came from. `traceback` would look for the source's files, which are not there."""
    lines = [f"{type(error).__name__}: {error}"]
    place = error.__traceback__
    while place is not None:
        code = place.tb_frame.f_code
        lines.append(f"{code.co_name} in {code.co_filename}:{place.tb_lineno}")
        place = place.tb_next
    # The first is where it was caught; of the deepest there may be a thousand.
    return "\n".join(lines[:1] + lines[2:][-10:])


def millis(value: float) -> int:
    """Milliseconds as the contract has them."""
    if not 0 <= value < 2**64:
        raise ValueError(f"{value} is no number of milliseconds")
    return round(value)
