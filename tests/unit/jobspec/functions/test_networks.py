import pytest
from tests.calls import refusal, value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('cidrhost("10.0.0.0/8", 258)', "10.0.1.2"),
        ('cidrhost("10.0.0.0/24", -2)', "10.0.0.254"),
        ('cidrhost("fd00::/64", 5)', "fd00::5"),
        ('cidrnetmask("172.16.0.0/12")', "255.240.0.0"),
        ('cidrsubnet("10.0.0.0/8", 8, 2)', "10.2.0.0/16"),
        ('cidrsubnet("fd00::/48", 16, 10)', "fd00:0:0:a::/64"),
        ('cidrsubnets("10.0.0.0/16", 4, 8, 4)', ["10.0.0.0/20", "10.0.16.0/24", "10.0.32.0/20"]),
    ],
)
def test_network_function(text: str, expected: object) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('cidrhost("10.0.0.1", 1)', 'invalid CIDR expression "10.0.0.1"'),
        ('cidrhost("10.0.0.0/30", 9)', "does not accommodate a host numbered 9"),
        ('cidrnetmask("fd00::/64")', "only IPv4 networks"),
        ('cidrsubnet("10.0.0.0/30", 8, 0)', "insufficient address space"),
        ('cidrsubnet("10.0.0.0/8", 2, 9)', "does not accommodate a subnet numbered 9"),
        ('cidrsubnets("10.0.0.0/31", 1, 1, 1)', "not enough remaining address space"),
        ('cidrsubnets("10.0.0.0/8", 0)', "cannot extend a prefix of 8 by 0 bits"),
    ],
)
def test_what_a_network_function_refuses(text: str, message: str) -> None:
    assert message in refusal(text)
