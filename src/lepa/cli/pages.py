"""Pages for a browser: the address of what a command is about, and opening it."""

import functools
import os
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlencode

from lepa.cli.flags import argument, command, flag
from lepa.cli.output import table
from lepa.cli.session import Session, api, find_job, job_page, segment
from lepa.model.errors import LepaError, not_found

DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
"""Of the environment: one of them is set where a browser has somewhere to appear."""
PAGED = {"allocs": "allocations/{}", "nodes": "clients/{}", "evals": "evaluations", "deployment": "jobs"}
"""Where a search's findings have their pages; a job's needs its namespace too."""


@command()
@argument("identifier", required=False, shown="[id]")
@flag("authenticate", "Sign the browser in with your token, by one that is good for one exchange.")
@flag("show-url", "Print the address only.")
@api
def ui(session: Session, identifier: str | None, show_url: bool, authenticate: bool) -> None:
    """Open the pages of the cluster in a browser, or that of the job, allocation or node whose id begins so."""
    query = {}
    if identifier is not None:
        kind, found = search(session, identifier, ("jobs", "allocs", "nodes"))
        session.page = job_page(find_job(session, found)) if kind == "jobs" else PAGED[kind].format(segment(found))
    if authenticate:
        made = session.nomad.put("/v1/acl/token/onetime", None).value
        query = {"ott": made["OneTimeToken"]["OneTimeSecretID"]}
    url = address(session, query)
    if show_url:
        session.out.line(url)
    else:
        open_page(session, url)


def with_ui(page: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command Nomad's -ui, which opens the page of what it is about; `page` where it is about nothing else."""

    def give(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(session: Session, *args: Any, ui: bool, **values: Any) -> Any:
            session.page = page
            result = function(session, *args, **values)
            if ui:
                open_page(session, address(session, {}))
            return result

        return flag("ui", "Open the page of this in a browser.")(run)

    return give


def address(session: Session, query: dict[str, str]) -> str:
    """Where the page is that the command is about."""
    to = session.nomad.target
    places = {"namespace": to.namespace if "/" not in session.page else "", "region": to.region, **query}
    given = urlencode({name: text for name, text in places.items() if text})
    return f"{to.url}/ui/{session.page}{f'?{given}' if given else ''}"


def open_page(session: Session, url: str) -> None:
    """Open a page where there is a display, and say which in any case."""
    import webbrowser

    opened = any(os.environ.get(name) for name in DISPLAYS) and webbrowser.open(url)
    session.out.error(f'Opening URL "{url}"' if opened else f"No browser can be opened here. The page is {url}")


def search(session: Session, identifier: str, kinds: Iterable[str]) -> tuple[str, str]:
    """Kind and id of the one thing whose id begins so, among some kinds."""
    body = {"Prefix": identifier, "Context": "all"}
    matches = session.nomad.put("/v1/search", body).value["Matches"] or {}
    found = [(kind, each) for kind in kinds for each in matches.get(kind) or ()]
    exact = [pair for pair in found if pair[1] == identifier]
    chosen = exact or found
    if not chosen:
        raise not_found(f'Nothing has an id that begins with "{identifier}"')
    if len(chosen) > 1:
        listed = table(("Kind", "ID"), sorted(chosen))
        raise LepaError("invalid", f'Several things have an id that begins with "{identifier}"\n\n{listed}')
    return chosen[0]
