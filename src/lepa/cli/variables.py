"""`lepa var …`: configuration and secrets by path."""

import os
from typing import Any

from lepa.cli import variable_spec
from lepa.cli.flags import argument, command, flag, option
from lepa.cli.output import Json, pretty_json, table
from lepa.cli.pages import with_ui
from lepa.cli.session import Session, Shape, api
from lepa.cli.tenancy import paged
from lepa.model.errors import LepaError, conflict, invalid

LISTS = ("go-template", "json", "table", "terse")


def path_of(path: str) -> str:
    """Where the API has a variable; its slashes belong to the path."""
    from urllib.parse import quote

    return f"/v1/var/{quote(path, safe='/')}"


def _format(session: Session, out: str | None, template: str | None, known: tuple[str, ...], piped: str) -> str:
    if out is None:
        out = "go-template" if template else "table" if session.out.live else piped
    if out not in known and out != "pretty-json":
        raise invalid(f"-out is one of {', '.join(known)}, not {out!r}")
    if template and out != "go-template":
        raise invalid("-template needs -out=go-template")
    return out


@command()
@argument("path", shown="<path>")
@option("item", "Print only the value of this item, without a line end.", metavar="name")
@option("out", "How to print it: go-template, hcl, json, none or table.", metavar="format")
@option("template", "The template of -out=go-template.", metavar="template")
@api
@with_ui("variables")
def get(session: Session, path: str, item: str | None, out: str | None, template: str | None) -> None:
    """Show a variable; as a table where a person looks, else as JSON."""
    wanted = _format(session, out, template, variable_spec.FORMATS, "json")
    variable: Json = session.nomad.get(path_of(path)).value
    if item is not None:
        if item not in variable["Items"]:
            raise LepaError("not_found", f'the variable {path} has no item "{item}"')
        session.out.write(variable["Items"][item].encode())
    elif wanted != "none":
        session.out.line(variable_spec.shown(variable, wanted, template))


@command()
@argument("words", many=True, shown="<path|@file|-> [@file|-] [key=value...]")
@flag("force", "Write whatever the variable's index is.")
@flag("verbose", "Say what is read.", short="v")
@option("check-index", "Write only while the variable has this index; 0: only when it is new.", metavar="index")
@option("in", "What a specification is written in: hcl or json.", default="json", metavar="format")
@option("out", "How to print what was written: go-template, hcl, json, none or table.", metavar="format")
@option("template", "The template of -out=go-template.", metavar="template")
@api
@with_ui("variables")
def put(
    session: Session,
    words: tuple[str, ...],
    force: bool,
    verbose: bool,
    check_index: str | None,
    out: str | None,
    template: str | None,
    **more: str,
) -> None:
    """Write a variable: from items, from a specification, or from one with items over it.

    An index in the specification is held against the variable's, as with -check-index.
    """
    if not words:
        raise invalid("a path or a specification is needed")
    if check_index is not None and not check_index.isdigit():
        raise invalid(f'-check-index is a number, not "{check_index}"')
    wanted = _format(session, out or (None if template else "none"), template, variable_spec.FORMATS, "none")
    if verbose and any(word == "-" or word.startswith("@") for word in words[:2]):
        session.out.error("Reading the variable's specification")
    variable = variable_spec.gathered(words, more["in"])
    index = check_index if check_index is not None else variable.pop("ModifyIndex", None)
    written = _write(session, variable, None if force else index)
    done = "created" if written["CreateIndex"] == written["ModifyIndex"] else "updated"
    say = session.out.line if wanted in ("none", "table") else session.out.error
    say(f'Successfully {done} variable "{written["Path"]}"!')
    if wanted != "none":
        session.out.line(variable_spec.shown(written, wanted, template))


def _write(session: Session, variable: Json, index: Any) -> Json:
    body = {key: variable[key] for key in ("Namespace", "Path", "Items", "Lock") if variable.get(key)}
    # The flag and the environment are the namespace of the request; a specification's own is for where neither is.
    query: Json = {} if index in (None, "") else {"cas": index}
    if session.nomad.target.namespace:
        body.pop("Namespace", None)
    elif "Namespace" in body:
        query["namespace"] = body["Namespace"]
    try:
        found: Json = session.nomad.put(path_of(variable["Path"]), body, query).value
    except LepaError as error:
        raise _sentence(error, index) from error
    return found


def _sentence(error: LepaError, index: Any) -> Exception:
    return variable_spec.refused(error.message, index) if error.code == "conflict" else error


@command()
@argument("path", shown="<path>")
@option("check-index", "Delete only while the variable has this index.", metavar="index")
@api
def purge(session: Session, path: str, check_index: str | None) -> None:
    """Delete a variable for good."""
    if check_index is not None and not check_index.isdigit():
        raise invalid(f'-check-index is a number, not "{check_index}"')
    try:
        session.nomad.delete(path_of(path), {} if check_index is None else {"cas": check_index})
    except LepaError as error:
        raise _sentence(error, check_index) from error
    session.out.line(f'Successfully purged variable "{path}"!')


@command()
@argument("prefix", required=False, shown="[prefix]")
@option("out", "How to print them: go-template, json, table or terse (paths only).", metavar="format")
@option("template", "The template of -out=go-template.", metavar="template")
@paged
@api
@with_ui("variables")
def list_variables(
    session: Session, prefix: str | None, out: str | None, template: str | None, query: dict[str, Any]
) -> None:
    """List variables by path; as a table where a person looks, else as JSON."""
    wanted = _format(session, out, template, LISTS, "json")
    answer = session.nomad.get("/v1/vars", {"prefix": prefix, **query})
    found = answer.value or []
    if wanted == "json":
        session.out.line(pretty_json(found))
    elif wanted == "go-template":
        session.out.line(Shape(as_json=False, template=template or "").render(found))
    elif wanted == "terse":
        session.out.line("\n".join(each["Path"] for each in found))
    elif not found:
        session.out.line("No variables found" if prefix is None else f'No variables with the prefix "{prefix}" found')
    else:
        rows = [(each["Namespace"], each["Path"], variable_spec.when(each["ModifyTime"])) for each in found]
        session.out.line(table(("Namespace", "Path", "Last Updated"), rows))
    if answer.next_token:
        session.out.error(f"Results have been paginated. To get the next page run:\n\n-page-token {answer.next_token}")


@command()
@argument("file", required=False, shown="[file]")
@option("out", "What to write it in: hcl or json.", default="hcl", metavar="format")
@flag("quiet", "Say nothing.")
@api
def init(session: Session, file: str | None, out: str, quiet: bool) -> None:
    """Write an example of a specification that `var put` takes."""
    if out not in ("hcl", "json"):
        raise invalid(f'-out is hcl or json, not "{out}"')
    path = file or f"spec.nv.{out}"
    example = variable_spec.EXAMPLE
    text = pretty_json(example) if out == "json" else variable_spec.as_hcl(example)
    try:
        with open(path, "x", encoding="utf-8") as made:
            made.write(f"{text}\n")
    except FileExistsError as error:
        raise conflict(f"{path} exists; it stays as it is") from error
    except OSError as error:
        raise invalid(f"cannot write {path}: {error.strerror or error}") from error
    if not quiet:
        session.out.line(f"Example variable specification written to {os.fspath(path)}")
