"""The whole table of lepa.jobspec.functions."""

from pathlib import Path

from lepa.jobspec.functions import function_table

NOMADS = """
abs abspath base64decode base64encode basename bcrypt can ceil chomp chunklist cidrhost cidrnetmask cidrsubnet
cidrsubnets coalesce coalescelist compact concat contains convert csvdecode dirname distinct element file filebase64
fileexists fileset flatten floor format formatdate formatlist indent index join jsondecode jsonencode keys length
log lookup lower max md5 merge min parseint pathexpand pow range regex_replace replace reverse rsadecrypt
setintersection setproduct setunion sha1 sha256 sha512 signum slice sort split strlen strrev substr timeadd title
trim trimprefix trimspace trimsuffix try upper urlencode uuidv4 uuidv5 values yamldecode yamlencode zipmap
"""


def test_every_function_of_nomad_is_known() -> None:
    assert set(function_table()) == {*NOMADS.split(), "templatefile"}


def test_every_function_is_on_the_reference_page() -> None:
    page = (Path(__file__).parents[4] / "docs" / "reference" / "job-file.md").read_text()
    assert [name for name in function_table() if f"`{name}`" not in page] == []
