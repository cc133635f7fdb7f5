"""Job files: HCL2 or JSON text -> a plain dict in the API's JSON shape, with diagnostics; and their canonical form."""

from lepa.jobspec.diagnostics import Diagnostic
from lepa.jobspec.job_file import Parsed, parse

__all__ = ["Diagnostic", "Parsed", "parse"]
