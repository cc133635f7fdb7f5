"""Verbs of Nomad's Enterprise edition. The agent is asked all the same, and says what it does not have."""

from collections.abc import Callable
from typing import Any, NamedTuple

from lepa.cli.flags import Command, argument, command, flag, option
from lepa.cli.session import Session, api, segment
from lepa.model.errors import LepaError

NOT_HERE = "this belongs to Nomad's Enterprise edition, and lepa does not have it"


class Verb(NamedTuple):
    """A command that only asks. path: may hold `{}` for its argument. flags: of Nomad's command."""

    method: str
    path: str
    takes: str = ""
    switches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


def refused(verb: Verb, help: str) -> Command:
    """The command of a verb."""

    def run(session: Session, **given: Any) -> None:
        name = given.get("name") or ""
        try:
            session.nomad.raw(verb.method, verb.path.format(segment(str(name))), None, b"{}" if given else None)
        except LepaError as error:
            if error.facts.get("status") == 501:
                raise LepaError("unsupported", f"{error.message}: {NOT_HERE}") from error
            raise

    run.__doc__ = f"{help} Only Nomad's Enterprise edition has this; the agent says so."
    decorated: Callable[..., Any] = api(run)
    for switch in verb.switches:
        decorated = flag(switch, "Accepted.", hidden=True)(decorated)
    for named in verb.options:
        decorated = option(named, "Accepted.", metavar="value", hidden=True)(decorated)
    if verb.takes:
        decorated = argument("name", shown=verb.takes, required=verb.takes.startswith("<"))(decorated)
    return command()(decorated)


quota_apply = refused(Verb("PUT", "/v1/quota", "<file>", ("json",)), "Create or change a quota.")
quota_delete = refused(Verb("DELETE", "/v1/quota/{}", "<name>"), "Delete a quota.")
quota_init = refused(Verb("GET", "/v1/quotas", "[file]", ("json",)), "Write an example of a quota.")
quota_inspect = refused(Verb("GET", "/v1/quota/{}", "<name>", ("json",), ("t",)), "Print a quota.")
quota_list = refused(Verb("GET", "/v1/quotas", "", ("json",), ("t",)), "List quotas.")
quota_status = refused(Verb("GET", "/v1/quota/{}", "<name>", ("json",), ("t",)), "Show a quota and its use.")
recommendation_apply = refused(
    Verb("PUT", "/v1/recommendations/apply", "<id>", ("policy-override", "detach", "verbose")),
    "Apply a recommendation.",
)
recommendation_dismiss = refused(Verb("DELETE", "/v1/recommendations", "<id>"), "Dismiss a recommendation.")
recommendation_info = refused(Verb("GET", "/v1/recommendation/{}", "<id>", ("json",), ("t",)), "Show a recommendation.")
recommendation_list = refused(
    Verb("GET", "/v1/recommendations", "", ("json",), ("t", "job", "group", "task")), "List recommendations."
)
sentinel_list = refused(Verb("GET", "/v1/sentinel/policies"), "List Sentinel policies.")
sentinel_apply = refused(
    Verb("PUT", "/v1/sentinel/policy/{}", "<name>", (), ("description", "scope", "level")),
    "Create or change a Sentinel policy.",
)
sentinel_delete = refused(Verb("DELETE", "/v1/sentinel/policy/{}", "<name>"), "Delete a Sentinel policy.")
sentinel_read = refused(Verb("GET", "/v1/sentinel/policy/{}", "<name>", ("raw",)), "Print a Sentinel policy.")
utilization = refused(
    Verb("POST", "/v1/operator/utilization", "", ("today-only",), ("output", "message")), "Print a utilization report."
)
alloc_pause = refused(
    Verb("PUT", "/v1/client/allocation/{}/pause", "<allocation>", ("verbose", "status"), ("state", "task")),
    "Pause a task that has a schedule.",
)


@command()
@api
def license_get(session: Session) -> None:
    """Print the licence: there is none, and none is needed."""
    session.nomad.raw("GET", "/v1/operator/license")
    session.out.line("lepa needs no licence")
