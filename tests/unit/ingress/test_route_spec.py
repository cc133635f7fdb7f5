import pytest

from lepa.ingress.route_spec import PLAIN, Notice, Options, Redirect


@pytest.mark.parametrize(
    "options",
    [Options(redirect=Redirect(301, "/")), Options(auth="x"), Options(allow=("::/0",)), Options(deny=("::/0",))],
)
def test_what_is_looked_at_before_a_target_is_asked(options: Options) -> None:
    assert options.is_guarded
    assert not PLAIN.is_guarded


def test_notices_are_in_order_of_services() -> None:
    assert sorted([Notice("b", "x", "p"), Notice("a", "z", "p")])[0].service == "a"
