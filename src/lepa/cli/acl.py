"""`lepa acl bootstrap|policy|token|role …`: who may do what."""

from typing import Any

from lepa.cli.flags import argument, command, flag, option, repeated
from lepa.cli.output import Json, pairs, table
from lepa.cli.session import Session, Shape, api, read_input, segment, shaped
from lepa.model.errors import invalid

MANAGEMENT = "management"


def _show(session: Session, shape: Shape, found: Any, text: str) -> None:
    session.out.line(shape.render(found) if shape else text)


def _listed(session: Session, shape: Shape, found: list[Json], header: tuple[str, ...], nothing: str) -> None:
    """Rows whose cells are the members that the header names."""
    if shape or not found:
        session.out.line(shape.render(found) if shape else nothing)
        return
    rows = [[_text(each.get(name.replace(" ", ""))) for name in header] for each in found]
    session.out.line(table(header, rows))


def _text(value: Any) -> Any:
    if isinstance(value, list):
        return ",".join(each["Name"] if isinstance(each, dict) else str(each) for each in value)
    return value


# Tokens


def token_text(token: Json) -> str:
    """A token as people read it."""
    client = token["Type"] != MANAGEMENT
    head: list[tuple[str, object]] = [
        ("Accessor ID", token["AccessorID"]),
        ("Secret ID", token.get("SecretID")),
        ("Name", token["Name"]),
        ("Type", token["Type"]),
        ("Global", token["Global"]),
        ("Create Time", token["CreateTime"]),
        ("Expiry Time", token.get("ExpirationTime")),
        ("Create Index", token["CreateIndex"]),
        ("Modify Index", token["ModifyIndex"]),
        ("Policies", _text(token.get("Policies")) if client else "n/a"),
    ]
    roles = token.get("Roles") or []
    text = pairs(head)
    return (
        f"{text}\n\nRoles\n{table(('ID', 'Name'), [(role['ID'], role['Name']) for role in roles])}" if roles else text
    )


@command()
@argument("secret", required=False, shown="[file|-]")
@shaped
@api
def bootstrap(session: Session, secret: str | None, shape: Shape) -> None:
    """Make the first token, which may do everything; once.

    A file, or standard input for -, gives its secret (a UUID); else one is made.
    """
    body = {"BootstrapSecret": read_input(secret).decode().strip()} if secret else None
    token = session.nomad.post("/v1/acl/bootstrap", body).value
    _show(session, shape, token, token_text(token))


def _token_path(accessor: str) -> str:
    return f"/v1/acl/token/{segment(accessor)}"


def _roles(names: tuple[str, ...], ids: tuple[str, ...]) -> list[Json]:
    return [*({"Name": name} for name in names), *({"ID": each} for each in ids)]


@command()
@option("name", "What people call it.", default="", metavar="name")
@option("type", "client or management.", default="client", metavar="type")
@flag("global", "Valid in all regions.")
@option("ttl", "How long it is valid, such as 8h.", default="", metavar="duration")
@option("accessor", "Its accessor ID; else one is made.", default="", metavar="id")
@repeated("policy", "A policy of it; may be repeated.", metavar="name")
@repeated("role-name", "A role of it; may be repeated.", metavar="name")
@repeated("role-id", "A role of it; may be repeated.", metavar="id")
@shaped
@api
def token_create(
    session: Session,
    name: str,
    type: str,
    ttl: str,
    accessor: str,
    policy: tuple[str, ...],
    role_name: tuple[str, ...],
    role_id: tuple[str, ...],
    shape: Shape,
    **more: bool,
) -> None:
    """Make a token."""
    body: Json = {"Name": name, "Type": type, "Global": more["global"]}
    body |= {"Policies": list(policy)} if policy else {}
    body |= {"Roles": roles} if (roles := _roles(role_name, role_id)) else {}
    body |= {"ExpirationTTL": ttl} if ttl else {}
    body |= {"AccessorID": accessor} if accessor else {}
    token = session.nomad.put("/v1/acl/token", body).value
    _show(session, shape, token, token_text(token))


@command()
@argument("accessor", shown="<accessor id>")
@option("name", "What people call it.", metavar="name")
@option("type", "client or management.", metavar="type")
@flag("global", "Valid in all regions.", default=None)
@repeated("policy", "A policy of it, instead of those that it has; may be repeated.", metavar="name")
@repeated("role-name", "A role of it, instead of those that it has; may be repeated.", metavar="name")
@repeated("role-id", "A role of it, instead of those that it has; may be repeated.", metavar="id")
@shaped
@api
def token_update(
    session: Session,
    accessor: str,
    name: str | None,
    type: str | None,
    policy: tuple[str, ...],
    role_name: tuple[str, ...],
    role_id: tuple[str, ...],
    shape: Shape,
    **more: bool | None,
) -> None:
    """Change a token. What no flag names stays as it was."""
    before: Json = session.nomad.get(_token_path(accessor)).value
    given: Json = {"Name": name, "Type": type, "Global": more["global"]}
    given |= {"Policies": list(policy) or None, "Roles": _roles(role_name, role_id) or None}
    body = before | {key: value for key, value in given.items() if value is not None}
    token = session.nomad.put(_token_path(accessor), body).value
    _show(session, shape, token, token_text(token))


@command()
@argument("accessor", shown="<accessor id>")
@api
def token_delete(session: Session, accessor: str) -> None:
    """Delete a token: whoever shows it is nobody from now on."""
    session.nomad.delete(_token_path(accessor))
    session.out.line(f"Token {accessor} successfully deleted")


@command()
@argument("accessor", shown="<accessor id>")
@shaped
@api
def token_info(session: Session, accessor: str, shape: Shape) -> None:
    """Show a token."""
    token = session.nomad.get(_token_path(accessor)).value
    _show(session, shape, token, token_text(token))


@command()
@shaped
@api
def token_self(session: Session, shape: Shape) -> None:
    """Show the token in use."""
    token = session.nomad.get("/v1/acl/token/self").value
    _show(session, shape, token, token_text(token))


@command()
@shaped
@api
def token_list(session: Session, shape: Shape) -> None:
    """List tokens, without their secrets."""
    found = session.nomad.get("/v1/acl/tokens").value or []
    if shape or not found:
        session.out.line(shape.render(found) if shape else "No tokens found")
        return
    rows = [(each["Name"], each["Type"], each["Global"], each["AccessorID"], _over(session, each)) for each in found]
    session.out.line(table(("Name", "Type", "Global", "Accessor ID", "Expired"), rows))


def _over(session: Session, token: Json) -> bool:
    from lepa.cli.output import moment

    return 0 < moment(token.get("ExpirationTime") or 0) <= session.now_ns()


# Policies


def _policy_path(name: str) -> str:
    return f"/v1/acl/policy/{segment(name)}"


@command()
@argument("name", shown="<name>")
@argument("file", shown="<file|->")
@option("description", "What it is for.", default="", metavar="text")
@option("job", "Give it to the tasks of this job, in the namespace of -namespace.", default="", metavar="job")
@option("group", "Only to those of this group.", default="", metavar="group")
@option("task", "Only to this task.", default="", metavar="task")
@api
def policy_apply(session: Session, name: str, file: str, description: str, job: str, group: str, task: str) -> None:
    """Create or change a policy: a name and rules, from a file."""
    if (group and not job) or (task and not (job and group)):
        raise invalid("-group needs -job, and -task needs both")
    body: Json = {"Name": name, "Description": description, "Rules": read_input(file).decode("utf-8", "replace")}
    if job:
        namespace = session.nomad.target.namespace or "default"
        body["JobACL"] = {"Namespace": namespace, "JobID": job, "Group": group, "Task": task}
    session.nomad.put(_policy_path(name), body)
    session.out.line(f'Successfully wrote "{name}" ACL policy!')


@command()
@argument("name", shown="<name>")
@api
def policy_delete(session: Session, name: str) -> None:
    """Delete a policy: nobody has its rights from now on."""
    session.nomad.delete(_policy_path(name))
    session.out.line(f"Successfully deleted {name} policy!")


@command()
@argument("name", shown="<name>")
@shaped
@api
def policy_info(session: Session, name: str, shape: Shape) -> None:
    """Show a policy and its rules."""
    policy = session.nomad.get(_policy_path(name)).value
    if shape:
        session.out.line(shape.render(policy))
        return
    head: list[tuple[str, object]] = [("Name", policy["Name"]), ("Description", policy["Description"])]
    head += [("CreateIndex", policy["CreateIndex"]), ("ModifyIndex", policy["ModifyIndex"])]
    session.out.line(pairs(head))
    if job := policy.get("JobACL"):
        session.out.title("Associated Workload")
        session.out.line(pairs([(key, job[key]) for key in ("Namespace", "JobID", "Group", "Task") if job.get(key)]))
    session.out.title("Rules")
    session.out.line(policy["Rules"])


@command()
@shaped
@api
def policy_list(session: Session, shape: Shape) -> None:
    """List policies."""
    found = session.nomad.get("/v1/acl/policies").value or []
    _listed(session, shape, found, ("Name", "Description"), "No policies found")


@command()
@shaped
@api
def policy_self(session: Session, shape: Shape) -> None:
    """List the policies of the token in use."""
    found = session.nomad.get("/v1/acl/policy/self").value or []
    _listed(session, shape, found, ("Name", "Description"), "No policies found")


# Roles


def _role_path(role: str) -> str:
    return f"/v1/acl/role/{segment(role)}"


def _role_text(role: Json) -> str:
    return pairs(
        [
            ("ID", role["ID"]),
            ("Name", role["Name"]),
            ("Description", role["Description"]),
            ("Policies", _text(role.get("Policies"))),
            ("Create Index", role["CreateIndex"]),
            ("Modify Index", role["ModifyIndex"]),
        ]
    )


@command()
@option("name", "Its name.", default="", metavar="name")
@option("description", "What it is for.", default="", metavar="text")
@repeated("policy", "A policy of it; may be repeated.", metavar="name")
@shaped
@api
def role_create(session: Session, name: str, description: str, policy: tuple[str, ...], shape: Shape) -> None:
    """Make a role: policies under one name."""
    if not name:
        raise invalid("a role needs -name")
    if not policy:
        raise invalid("a role needs at least one -policy")
    body = {"Name": name, "Description": description, "Policies": [{"Name": each} for each in policy]}
    role = session.nomad.put("/v1/acl/role", body).value
    _show(session, shape, role, _role_text(role))


@command()
@argument("role", shown="<role id>")
@option("name", "Its name.", metavar="name")
@option("description", "What it is for.", metavar="text")
@repeated("policy", "A policy to add to it, or with -no-merge to have; may be repeated.", metavar="name")
@flag("no-merge", "Forget what no flag names, instead of keeping it.")
@shaped
@api
def role_update(
    session: Session,
    role: str,
    name: str | None,
    description: str | None,
    policy: tuple[str, ...],
    no_merge: bool,
    shape: Shape,
) -> None:
    """Change a role."""
    before: Json = session.nomad.get(_role_path(role)).value
    kept = [] if no_merge else [each["Name"] for each in before.get("Policies") or []]
    if no_merge and not (name and policy):
        raise invalid("-no-merge needs -name and at least one -policy")
    body = {
        "ID": before["ID"],
        "Name": before["Name"] if name is None else name,
        "Description": ("" if no_merge else before["Description"]) if description is None else description,
        "Policies": [{"Name": each} for each in dict.fromkeys([*kept, *policy])],
    }
    found = session.nomad.put(_role_path(before["ID"]), body).value
    _show(session, shape, found, _role_text(found))


@command()
@argument("role", shown="<role id>")
@api
def role_delete(session: Session, role: str) -> None:
    """Delete a role: nobody has its rights from now on."""
    session.nomad.delete(_role_path(role))
    session.out.line(f"ACL role {role} successfully deleted")


@command()
@argument("role", shown="<role id>")
@flag("by-name", "The word is the role's name.")
@shaped
@api
def role_info(session: Session, role: str, by_name: bool, shape: Shape) -> None:
    """Show a role."""
    found = session.nomad.get(f"/v1/acl/role/name/{segment(role)}" if by_name else _role_path(role)).value
    _show(session, shape, found, _role_text(found))


@command()
@shaped
@api
def role_list(session: Session, shape: Shape) -> None:
    """List roles."""
    found = session.nomad.get("/v1/acl/roles").value or []
    _listed(session, shape, found, ("ID", "Name", "Description", "Policies"), "No ACL roles found")
