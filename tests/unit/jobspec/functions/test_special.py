import pytest
from tests.calls import refusal, value

FILES = {
    "greeting": "Hello ${upper(name)}!\n%{ for i in items ~}\n- ${i}\n%{ endfor ~}\n",
    "broken": "${",
    "unknown": "${other}",
    "again": '${templatefile("greeting", {})}',
    "one": "${list}",
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("try(var.missing, 1 / 0, 5)", 5),
        ("try(var.a, 5)", 1),
        ("can(var.a)", True),
        ("can(var.a.b)", False),
        ('convert("5", number)', 5),
        ('convert(["b", "a", "b"], set(string))', ["a", "b"]),
        ("convert({a = 1}, map(string))", {"a": "1"}),
        ('templatefile("greeting", {name = "you", items = [1, 2]})', "Hello YOU!\n- 1\n- 2\n"),
        ('templatefile("one", {list = [1]})', [1]),
    ],
)
def test_special_function(text: str, expected: object) -> None:
    assert value(text, FILES.__getitem__) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("try()", "It needs an argument."),
        ("try(1 / 0, nope())", 'The last one failed: There is no function named "nope".'),
        ("can()", 'Function "can" expects 1 argument.'),
        ('convert("x", number)', "Cannot be converted: a number is required"),
        ('convert("x", "y")', "Invalid type specification"),
        ('convert("x")', 'Function "convert" expects a value and a type.'),
        ('templatefile("greeting")', 'Function "templatefile" expects a path and a map of variables.'),
        ('templatefile("greeting", [])', "a map is required"),
        ('templatefile("broken", {})', "The template cannot be rendered: broken:1,1-3: Unclosed template sequence"),
        ('templatefile("unknown", {})', "unknown:1,3-8: Variables not allowed"),
        ('templatefile("again", {})', 'There is no function named "templatefile".'),
        ("uuidv4()", '"uuidv4" is not supported: it gives another result each time'),
        ('bcrypt("x")', '"bcrypt" is not supported'),
        ('rsadecrypt("x", "y")', '"rsadecrypt" is not supported'),
        ('fileset(".", "*")', '"fileset" is not supported'),
    ],
)
def test_what_a_special_function_refuses(text: str, message: str) -> None:
    assert message in refusal(text, FILES.__getitem__)
