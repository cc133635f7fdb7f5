"""Pure: job files: text -> a plain dict in the API's JSON shape, with diagnostics; and their canonical form.

text --hcl, grammar--> body --mapping, expressions--> dict --lepa.model.job_rules--> Job
text --formatter--> text
text, values of its variables --variable_text--> text of a variable file
"""

from lepa.jobspec.diagnostics import Diagnostic
from lepa.jobspec.formatter import Formatted, format_text
from lepa.jobspec.job_file import Parsed, parse
from lepa.jobspec.variable_text import variable_text

__all__ = ["Diagnostic", "Formatted", "Parsed", "format_text", "parse", "variable_text"]
