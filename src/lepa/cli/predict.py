"""`lepa predict`: ask an application about one input."""

import json
from typing import Any

from lepa.cli.flags import argument, command, flag, option
from lepa.cli.output import Json
from lepa.cli.serving import Cluster, serving
from lepa.cli.session import read_input
from lepa.model.errors import invalid, not_found


@command()
@argument("application", shown="<app>")
@argument("input", shown="<input|->")
@option("version", "Version of the model to ask.", default="", metavar="version")
@flag("json", "Print the whole answer.")
@serving
def predict(cluster: Cluster, application: str, input: str, version: str, json: bool) -> None:
    """Ask an application about one input, given as JSON (such as `[1.5, 2]`), or as text for applications of strings.

    With - the input is read from standard input.
    """
    text = read_input("-").decode("utf-8", "replace") if input == "-" else input
    connection = cluster.running()
    app = connection.get_app_info(application)
    if app is None:
        raise not_found(f'there is no application "{application}"; `lepa app list` lists them')
    answer = connection.predict(application, _value(text, app["input_type"]), version)
    cluster.session.out.line(_shown(answer, whole=json))


def _value(text: str, input_type: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError as error:
        if input_type in ("strings", "bytes"):
            return text
        raise invalid(f"the input is not JSON: {error}; {input_type} are given as [1, 2.5]") from error
    return text if input_type in ("strings", "bytes") and not isinstance(value, str) else value


def _shown(answer: Json, *, whole: bool) -> str:
    if whole or "output" not in answer:
        return json.dumps(answer)
    output = answer["output"]
    text = output if isinstance(output, str) else json.dumps(output)
    return (
        f"{text}  (default: {answer.get('default_explanation') or 'no model answered in time'})"
        if answer.get("default")
        else text
    )
