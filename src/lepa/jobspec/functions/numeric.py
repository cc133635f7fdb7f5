"""Pure: functions about numbers."""

from __future__ import annotations

import math

from lepa.jobspec import values
from lepa.jobspec.functions.calling import Row, number, row, text, whole
from lepa.jobspec.values import Conversion

RANGE_SIZE_MAX = 1024


def log(value: int | float, base: int | float) -> int | float:
    """The logarithm of the value in a base."""
    try:
        return values.number(math.log(value) / math.log(base))
    except (ValueError, ZeroDivisionError):
        raise Conversion(f"there is no logarithm of {value} in the base {base}") from None


def power(base: int | float, exponent: int | float) -> int | float:
    """base to the power of exponent."""
    if (
        isinstance(base, int)
        and isinstance(exponent, int)
        and 0 <= exponent * base.bit_length() < values.NUMBER_BITS_MAX
    ):
        return int(base**exponent) if exponent >= 0 else values.number(float(base) ** exponent)
    try:
        return values.number(math.pow(base, exponent))
    except (ValueError, OverflowError):
        raise Conversion(f"{base} to the power of {exponent} is not a number or too large") from None


def parse_integer(digits: str, base: int) -> int:
    """The whole number that the digits write in a base from 2 to 62, which is Go's range; above 36 case counts."""
    if not 2 <= base <= 62:
        raise Conversion("the base must be between 2 and 62")
    body = digits.removeprefix("-").removeprefix("+") if digits[:1] in ("-", "+") else digits
    alphabet = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"[:base]
    total = 0
    for digit in body if base > 36 else body.lower():
        if digit not in alphabet:
            raise Conversion(f"cannot parse {values.quoted(digits)} as a base {base} integer")
        total = int(values.number(total * base + alphabet.index(digit)))
    if not body:
        raise Conversion(f"cannot parse {values.quoted(digits)} as a base {base} integer")
    return -total if digits.startswith("-") else total


def number_range(*limits: int | float) -> list[int | float]:
    """range(end), range(start, end) or range(start, end, step)."""
    if not 1 <= len(limits) <= 3:
        raise Conversion("one to three numbers are needed")
    start = limits[0] if len(limits) > 1 else 0
    end = limits[1] if len(limits) > 1 else limits[0]
    step = limits[2] if len(limits) == 3 else (1 if end >= start else -1)
    if step == 0 or (step > 0) != (end >= start):
        raise Conversion("the step must lead from the start to the end")
    found: list[int | float] = []
    value = start
    while (value < end) if step > 0 else (value > end):
        if len(found) == RANGE_SIZE_MAX:
            raise Conversion(f"more than {RANGE_SIZE_MAX} values were generated; check the limits")
        found.append(value)
        value = values.number(value + step)
    return found


ROWS: tuple[Row, ...] = (
    row("abs", abs, number),
    row("ceil", math.ceil, number),
    row("floor", math.floor, number),
    row("log", log, number, number),
    row("max", max, number, rest=number),
    row("min", min, number, rest=number),
    row("parseint", parse_integer, text, whole),
    row("pow", power, number, number),
    row("range", number_range, rest=number),
    row("signum", lambda value: (value > 0) - (value < 0), number),
)
