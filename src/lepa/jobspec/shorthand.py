"""Pure: brings blocks that people write in short forms into the API's shape.

Each function is the `finish` of a table: it gets the values that were read, keyed as the rows say, and gives them back
as the API wants them. What it does not take it reports at the block.
"""

from typing import Any

from lepa.jobspec.schema import Place

_VALUE_FORMS = ("version", "semver", "regexp", "set_contains", "set_contains_any", "set_contains_all")


def comparison(values: dict[str, Any], place: Place) -> dict[str, Any]:
    """A constraint or affinity: `version = ">= 1"` and the like become operator and value; "=" is the default."""
    used = [form for form in (*_VALUE_FORMS, "distinct_hosts", "distinct_property") if form in values]
    if len(used) > 1 or (used and "Operand" in values):
        forms = ", ".join([*used, *(["operator"] if "Operand" in values else [])])
        place.error("Ambiguous operator", f"Only one of {forms} can be used in a block.")
    for form in used:
        given = values.pop(form)
        values["Operand"] = form
        if form == "distinct_property":
            values["LTarget"] = given
        elif form == "distinct_hosts":
            values["RTarget"] = "true" if given else "false"
        else:
            values["RTarget"] = given
    values.setdefault("Operand", "=")
    return values


def network(values: dict[str, Any], place: Place) -> dict[str, Any]:
    """A network: ports with a static number are reserved, the others dynamic; labels are unique whatever their case."""
    ports = values.pop("port", [])
    seen: dict[str, str] = {}
    for port in ports:
        label = port["Label"]
        if not label.strip():
            place.error("Invalid port label", "A port needs a label that is not empty.")
        earlier = seen.setdefault(label.lower(), label)
        if earlier is not label:
            place.error("Duplicate port label", f'Port label "{label}" is already in use by "{earlier}".')
    reserved = [port for port in ports if port.get("Value", 0) > 0]
    dynamic = [port for port in ports if port.get("Value", 0) <= 0]
    return {
        **values,
        **({"ReservedPorts": reserved} if reserved else {}),
        **({"DynamicPorts": dynamic} if dynamic else {}),
    }


def group_scaling(values: dict[str, Any], place: Place) -> dict[str, Any]:
    """A group scales horizontally only."""
    if values.get("Type", "horizontal") not in ("", "horizontal"):
        place.error("Invalid scaling policy type", 'The scaling policy of a group must have the type "horizontal".')
    return {**values, "Type": "horizontal"}


def task_scaling(values: dict[str, Any], place: Place) -> dict[str, Any]:
    """A task scales vertically; the label names the resource: `scaling "cpu"` or `scaling "mem"`."""
    label = values.pop("label", "")
    kind = {"cpu": "vertical_cpu", "mem": "vertical_mem"}.get(label)
    if kind is None:
        place.error(
            "Invalid scaling policy name", f'The label of scaling in a task must be "cpu" or "mem", not "{label}".'
        )
    elif values.get("Type", kind) not in ("", kind):
        place.error("Invalid scaling policy type", f'The scaling policy "{label}" of a task has the type "{kind}".')
    return {**values, "Type": kind}


def service(values: dict[str, Any], place: Place) -> dict[str, Any]:
    """A service: its check_restart holds for each of its checks, which may change parts of it."""
    shared = values.get("CheckRestart")
    for check in values.get("Checks", ()):
        if shared is not None:
            check["CheckRestart"] = {**shared, **check.get("CheckRestart", {})}
    return values


def task(values: dict[str, Any], place: Place) -> dict[str, Any]:
    """A task: the identity named "default" (or not named) is its main one; each resource scales by one policy."""
    identities = values.pop("Identities", [])
    others = [each for each in identities if each.get("Name") not in (None, "", "default")]
    main = [each for each in identities if each not in others]
    if len(main) > 1:
        place.error("Duplicate identity block", "Only one identity of a task may be the default one; name the others.")
    if main:
        values["Identity"] = {**main[0], "Name": "default"}
    if others:
        values["Identities"] = others
    kinds = [each.get("Type") for each in values.get("ScalingPolicies", ())]
    if len(set(kinds)) < len(kinds):
        place.error("Duplicate scaling block", "A task may have one scaling block for each resource.")
    return values


def group(values: dict[str, Any], place: Place) -> dict[str, Any]:
    """A group: its vault and secret blocks go to the tasks that have none of their own."""
    _hand_down(values, values.get("Tasks", ()))
    return values


def periodic(values: dict[str, Any], place: Place) -> dict[str, Any]:
    """A periodic block describes its times in cron's language."""
    return {**values, "SpecType": "cron"}


def job(values: dict[str, Any], place: Place) -> dict[str, Any]:
    """A job: named by its label; tasks outside groups get a group each; vault and secrets go down to the tasks."""
    label = values.pop("label", "")
    for token in ("consul_token", "vault_token"):
        if values.pop(token, None) is not None:
            place.warning("Ignored argument", f'"{token}" has no effect: tokens do not belong in job files.')
    lone = [{"Name": each["Name"], "Tasks": [each]} for each in values.pop("task", ())]
    groups = [*lone, *values.pop("TaskGroups", ())]
    _hand_down(values, [each for one in groups for each in one.get("Tasks", ())])
    identity = values.pop("ID", label)
    return {"ID": identity, "Name": values.pop("Name", label), **values, **({"TaskGroups": groups} if groups else {})}


def _hand_down(values: dict[str, Any], tasks: Any) -> None:
    vault, secrets = values.pop("Vault", None), values.pop("Secrets", ())
    for each in tasks:
        if vault is not None:
            each.setdefault("Vault", vault)
        names = {secret["Name"] for secret in each.get("Secrets", ())}
        inherited = [secret for secret in secrets if secret["Name"] not in names]
        if inherited:
            each["Secrets"] = [*each.get("Secrets", ()), *inherited]
