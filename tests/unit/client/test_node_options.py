import pytest

from lepa.client.node_options import allowed, hidden_variables, user_problem


@pytest.mark.parametrize(
    ("options", "driver", "expected"),
    [
        ({}, "docker", True),
        ({"driver.allowlist": "exec, docker"}, "docker", True),
        ({"driver.allowlist": "exec"}, "docker", False),
        ({"driver.whitelist": "exec"}, "docker", False),
        ({"driver.denylist": "docker"}, "docker", False),
        ({"driver.blacklist": "docker"}, "exec", True),
        ({"fingerprint.denylist": "docker"}, "docker", True),
    ],
)
def test_drivers_are_allowed_by_lists(options: dict[str, str], driver: str, expected: bool) -> None:
    assert allowed(options, "driver", driver) is expected


def test_root_is_nobody_for_isolated_tasks_unless_the_operator_says_so() -> None:
    assert "user 'root' is disallowed" in user_problem({}, "exec", "root")
    assert user_problem({}, "docker", "root") == user_problem({}, "raw_exec", "root") == ""
    assert user_problem({}, "exec", "nobody") == user_problem({}, "exec", "") == ""
    assert user_problem({"user.denylist": ""}, "exec", "root") == ""
    assert user_problem({"user.denylist": "bob", "user.checked_drivers": "raw_exec"}, "raw_exec", "bob") != ""


def test_variables_of_the_agent_are_kept_back() -> None:
    assert hidden_variables({"env.denylist": "A,B"}) == ("A", "B")
