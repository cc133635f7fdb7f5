import pytest

from lepa.jobspec import format_text

MESSY = """job "x" {
type="service"
    datacenters   = [ "dc1","dc2" ]   # where
  priority=50# how much
  meta{
a=1
  }


   group   "g"{ count=1+2*-3 }
  args = [
  "a",
      {x=1},
  ]
  list = [for k,v in var.x:v if(!k)]
  env = { A = upper( "x" ), "b":1, }
  call = f ( x [ 0 ] . y , z ... )
      data=<<EOF
 kept   as it is
   EOF
  destination="x"
  cond = a?b:c
}
"""

TIDY = """job "x" {
  type        = "service"
  datacenters = ["dc1", "dc2"] # where
  priority    = 50             # how much
  meta {
    a = 1
  }


  group "g" { count = 1 + 2 * -3 }
  args = [
    "a",
    { x = 1 },
  ]
  list        = [for k, v in var.x : v if (!k)]
  env         = { A = upper("x"), "b" : 1, }
  call        = f(x[0].y, z...)
  data        = <<EOF
 kept   as it is
   EOF
  destination = "x"
  cond        = a ? b : c
}
"""


def test_a_messy_file_becomes_tidy() -> None:
    found = format_text(MESSY)
    assert found.text == TIDY
    assert found.changed
    assert found.diagnostics == ()


def test_a_tidy_file_stays_as_it_is() -> None:
    once = format_text(MESSY).text
    assert not format_text(once).changed


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a=1", "a = 1\n"),
        ("", ""),
        ("\n\n", "\n\n"),
        ("a=1\r\nbc=2\r\n", "a  = 1\nbc = 2\n"),
        ("# c\n\n//d\n", "# c\n\n//d\n"),
        ("a {\n# c  \n}\n", "a {\n  # c\n}\n"),
        ("a=1\n\nbcd=2\n", "a = 1\n\nbcd = 2\n"),
        ("a=1\nbcd = [\n1]\n", "a = 1\nbcd = [\n1]\n"),
        ("a=-1\nb=!c\nd=1-1\ne=[-1,- 1]\n", "a = -1\nb = !c\nd = 1 - 1\ne = [-1, -1]\n"),
        ("a = f([{\nb = 1\n}])\n", "a = f([{\n  b = 1\n}])\n"),
        ("a=/* x */1\n", "a = /* x */ 1\n"),
        ('a="${ f( x ) }"\n', 'a = "${ f( x ) }"\n'),
        ("a = 1 # x\nbb = 2\ncc = 3 # y\n", "a  = 1 # x\nbb = 2\ncc = 3 # y\n"),
        ('port "a" { to=1 }\nport "bcd" { to=2 }\n', 'port "a" { to = 1 }\nport "bcd" { to = 2 }\n'),
        ("a = b[*].c\nd = b.*.c\n", "a = b[*].c\nd = b.*.c\n"),
        ("a = {}\nb {}\n", "a = {}\nb {}\n"),
        ("a = x::f( 1 )\n", "a = x::f(1)\n"),
    ],
)
def test_white_space_follows_the_rules(before: str, after: str) -> None:
    assert format_text(before).text == after


def test_a_broken_file_is_given_back_with_its_diagnostics() -> None:
    found = format_text("a = \n  b=1\n", "x.hcl")
    assert (found.text, found.changed) == ("a = \n  b=1\n", False)
    assert found.diagnostics[0].render().startswith("x.hcl:1,5-2,1: Invalid expression")
