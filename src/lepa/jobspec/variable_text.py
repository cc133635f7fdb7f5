"""Pure: the values that were given to a job file's variables -> the text of one variable file that gives them again.

What a person typed is not such a text: a flag is bare or an expression as the type of its variable wants it, the
environment is gone tomorrow, and of two files that set the same name only one may be kept. Each value is written as
JSON on a line of its own, which HCL reads, too, when template sequences are escaped; newlines stay inside the quotes.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from lepa.jobspec import hcl
from lepa.jobspec.diagnostics import Refusal, Reporter, Source
from lepa.jobspec.expressions import UNKNOWN, Budget, Scope
from lepa.jobspec.functions import function_table
from lepa.jobspec.variables import Given, declarations, given_values

_SEQUENCE = re.compile(r"[$%](?=\{)")
_ESCAPE = re.compile(r"\\(.)")
_NOT_IN_HCL = {"b": "\\u0008", "f": "\\u000c"}
"""JSON's escapes that HCL does not have."""


def variable_text(
    text: str,
    *,
    variables: Mapping[str, str] | None = None,
    var_files: Sequence[tuple[str, str]] = (),
    env: Mapping[str, str] | None = None,
) -> str | None:
    """`name = value` lines for each variable of the job file `text` that was given one; the sources are `parse`'s.

    None when the file, or a value, cannot be read. Names that the file does not declare are left out.
    """
    report = Reporter(Source("job", text))
    body = hcl.parse_body(report)
    given = Given(variables or {}, var_files, env or {}, strict=False)
    scope = Scope(text, {"var": {}, "local": {}}, function_table(), Budget())
    try:
        declaring = [block for block in body.blocks if block.type in ("variable", "variables")]
        found = given_values(declarations(declaring, report, scope), given, report, scope)
    except Refusal:
        return None
    if report.failed or UNKNOWN in found.values():
        return None
    return "".join(f"{name} = {_written(value)}\n" for name, value in sorted(found.items()))


def _written(value: Any) -> str:
    shown = json.dumps(value, ensure_ascii=False)
    shown = _ESCAPE.sub(lambda found: _NOT_IN_HCL.get(found[1], found[0]), shown)
    return _SEQUENCE.sub(lambda found: found[0] * 2, shown)
