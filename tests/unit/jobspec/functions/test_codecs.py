import pytest
from tests.calls import refusal, value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('base64encode("é")', "w6k="),
        ('base64decode("w6k=")', "é"),
        (r'csvdecode("a,b\n1,\"x,y\"\n")', [{"a": "1", "b": "x,y"}]),
        ('jsondecode("{\\"a\\": [1, 1.5, null, true]}")', {"a": [1, 1.5, None, True]}),
        ('jsonencode({b = 1, a = ["é", null]})', '{"a":["é",null],"b":1}'),
        ('jsonencode("<a & b>")', '"\\u003ca \\u0026 b\\u003e"'),
        ('urlencode("a b/é")', "a+b%2F%C3%A9"),
        (r'yamldecode("a:\n- 1\n")', {"a": [1]}),
        ("yamlencode({a = [1]})", '"a":\n- 1\n'),
    ],
)
def test_codec(text: str, expected: object) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('base64decode("a")', "the text is not base64 of a text in UTF-8"),
        ('base64decode("/w==")', "the text is not base64 of a text in UTF-8"),
        ('csvdecode("")', "missing header line"),
        (r'csvdecode("a\n1,2")', "another number of fields"),
        (r'csvdecode("a,a\n")', "two columns have the same name"),
        ('csvdecode("\\"a")', "invalid CSV"),
        ('jsondecode("{")', "the text is not valid JSON"),
        ('yamldecode("[")', "invalid YAML on line 1: a bracket is not closed"),
    ],
)
def test_what_a_codec_refuses(text: str, message: str) -> None:
    assert message in refusal(text)
