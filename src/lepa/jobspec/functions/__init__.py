"""Pure: the functions that expressions can call: one row each, by subject."""

from collections.abc import Mapping

from lepa.jobspec.expressions import Function
from lepa.jobspec.functions import codecs, dates, gather, hashes, networks, numeric, special, texts
from lepa.jobspec.functions.calling import Row, callable_from
from lepa.jobspec.functions.files import ReadFile, file_rows

_ROWS: tuple[Row, ...] = (
    *texts.ROWS,
    *numeric.ROWS,
    *gather.ROWS,
    *codecs.ROWS,
    *hashes.ROWS,
    *dates.ROWS,
    *networks.ROWS,
)
_PLAIN: dict[str, Function] = {row.name: callable_from(row) for row in _ROWS} | special.FUNCTIONS


def function_table(*, read_file: ReadFile | None = None, home: str = "") -> Mapping[str, Function]:
    """Functions by name. read_file: for `file` and the like, which are refused without it; home: for `pathexpand`."""
    files = {row.name: callable_from(row) for row in file_rows(read_file, home)}
    return {**_PLAIN, **files, "templatefile": special.templatefile(read_file)}
