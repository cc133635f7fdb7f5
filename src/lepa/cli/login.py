"""`lepa acl auth-method|binding-rule …` and `lepa login`: people for whom somebody else vouches."""

import contextlib
import json as codec
import os
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from lepa.cli.acl import token_text
from lepa.cli.flags import argument, command, flag, option
from lepa.cli.output import Json, pairs, table
from lepa.cli.session import Session, Shape, api, read_input, segment, shaped
from lepa.model.errors import LepaError, invalid, not_found

CALLBACK_PATH = "/oidc/callback"
WAIT_S = 300.0
TYPES = ("OIDC", "JWT")
SECRETS = ("OIDCClientSecret",)


def _method_path(name: str) -> str:
    return f"/v1/acl/auth-method/{segment(name)}"


def _config(given: str) -> Json:
    """JSON from the flag's own text, from a file (@path) or from standard input (-)."""
    text = given
    if given == "-" or given.startswith("@"):
        text = read_input(given.removeprefix("@")).decode("utf-8", "replace")
    try:
        found = codec.loads(text)
    except ValueError as error:
        raise invalid(f"-config is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise invalid("-config must be a JSON object")
    return found


def _method_text(method: Json) -> str:
    text = pairs(
        [
            ("Name", method["Name"]),
            ("Type", method["Type"]),
            ("Locality", method["TokenLocality"]),
            ("Max Token TTL", method["MaxTokenTTL"]),
            ("Token Name Format", method.get("TokenNameFormat")),
            ("Default", method["Default"]),
            ("Create Index", method["CreateIndex"]),
            ("Modify Index", method["ModifyIndex"]),
        ]
    )
    config = {key: _config_text(value) for key, value in (method.get("Config") or {}).items() if value}
    return f"{text}\n\nAuth Method Config\n\n{pairs(sorted(config.items()))}" if config else text


def _config_text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    if isinstance(value, dict):
        return "; ".join(f"{{{key}: {each}}}" for key, each in sorted(value.items()))
    return str(value)


def _written(session: Session, method: Json, path: str, shape: Shape, done: str) -> None:
    found = session.nomad.put(path, method).value
    _show(session, found, shape, lambda method: f"{done}\n{_method_text(method)}")


def _show(session: Session, found: Json, shape: Shape, text: Callable[[Json], str]) -> None:
    """Print an object in the shape that was asked for, else as text for people."""
    session.out.line(shape.render(found) if shape else text(found))


def _show_all(session: Session, found: list[Json], shape: Shape, what: str, columns: Mapping[str, str]) -> None:
    """Print a list of objects. columns: the title of each and the key that it shows."""
    if shape or not found:
        session.out.line(shape.render(found) if shape else f"No ACL {what} found")
    else:
        session.out.line(table(tuple(columns), [tuple(each[key] for key in columns.values()) for each in found]))


@command()
@option("name", "Its name.", default="", metavar="name")
@option("type", "OIDC or JWT.", default="", metavar="type")
@option("token-locality", "Where its tokens are valid: local or global.", default="", metavar="locality")
@option("token-name-format", "How its tokens are called.", default="", metavar="format")
@option("max-token-ttl", "How long its tokens are valid.", default="", metavar="duration")
@flag("default", "The one that logins use which name none.")
@option("config", "JSON, @file, or - for standard input.", default="", metavar="config")
@shaped
@api
def auth_method_create(
    session: Session,
    name: str,
    type: str,
    token_locality: str,
    token_name_format: str,
    max_token_ttl: str,
    default: bool,
    config: str,
    shape: Shape,
) -> None:
    """Make an auth method: who vouches for people."""
    for flag_name, value in (("name", name), ("config", config), ("max-token-ttl", max_token_ttl)):
        if not value:
            raise invalid(f"an auth method needs -{flag_name}")
    if token_locality not in ("local", "global"):
        raise invalid("-token-locality is local or global")
    if type.upper() not in TYPES:
        raise invalid("-type is OIDC or JWT")
    body: Json = {
        "Name": name,
        "Type": type.upper(),
        "TokenLocality": token_locality,
        "MaxTokenTTL": max_token_ttl,
        "Default": default,
        "Config": _config(config),
    }
    body |= {"TokenNameFormat": token_name_format} if token_name_format else {}
    _written(session, body, "/v1/acl/auth-method", shape, f"Created ACL auth method {name}")


@command()
@argument("name", shown="<name>")
@option("type", "OIDC or JWT.", metavar="type")
@option("token-locality", "Where its tokens are valid: local or global.", metavar="locality")
@option("token-name-format", "How its tokens are called.", metavar="format")
@option("max-token-ttl", "How long its tokens are valid.", metavar="duration")
@option("config", "JSON, @file, or - for standard input.", metavar="config")
@flag("default", "The one that logins use which name none.", default=None)
@shaped
@api
def auth_method_update(
    session: Session,
    name: str,
    type: str | None,
    token_locality: str | None,
    token_name_format: str | None,
    max_token_ttl: str | None,
    config: str | None,
    default: bool | None,
    shape: Shape,
) -> None:
    """Change an auth method. What no flag names stays as it was, its client secret too."""
    before: Json = session.nomad.get(_method_path(name)).value
    given = {
        "Type": type and type.upper(),
        "TokenLocality": token_locality,
        "TokenNameFormat": token_name_format,
        "MaxTokenTTL": max_token_ttl,
        "Default": default,
        "Config": _config(config) if config else None,
    }
    changed = {key: value for key, value in given.items() if value is not None}
    if not changed:
        raise invalid("nothing to change: give a flag")
    body = {key: before[key] for key in ("Name", "Type", "TokenLocality", "TokenNameFormat", "MaxTokenTTL", "Default")}
    if not config:
        body["Config"] = {key: value for key, value in before["Config"].items() if key not in SECRETS}
    _written(session, body | changed, _method_path(name), shape, f"Updated ACL auth method {name}")


@command()
@argument("name", shown="<name>")
@api
def auth_method_delete(session: Session, name: str) -> None:
    """Delete an auth method, and the binding rules that belong to it."""
    session.nomad.delete(_method_path(name))
    session.out.line(f"Deleted ACL auth method {name}")


@command()
@argument("name", shown="<name>")
@shaped
@api
def auth_method_info(session: Session, name: str, shape: Shape) -> None:
    """Show an auth method."""
    _show(session, session.nomad.get(_method_path(name)).value, shape, _method_text)


def _methods(session: Session) -> list[Json]:
    return list(session.nomad.get("/v1/acl/auth-methods").value or [])


@command()
@shaped
@api
def auth_method_list(session: Session, shape: Shape) -> None:
    """List auth methods."""
    columns = {"Name": "Name", "Type": "Type", "Default": "Default"}
    _show_all(session, _methods(session), shape, "auth methods", columns)


# Binding rules


def _rule_path(rule: str) -> str:
    return f"/v1/acl/binding-rule/{segment(rule)}"


def _rule_text(rule: Json) -> str:
    return pairs(
        [
            ("ID", rule["ID"]),
            ("Description", rule["Description"]),
            ("Auth Method", rule["AuthMethod"]),
            ("Selector", rule["Selector"]),
            ("Bind Type", rule["BindType"]),
            ("Bind Name", rule["BindName"]),
            ("Create Time", rule["CreateTime"]),
            ("Modify Time", rule["ModifyTime"]),
            ("Create Index", rule["CreateIndex"]),
            ("Modify Index", rule["ModifyIndex"]),
        ]
    )


@command()
@option("description", "What it is for.", default="", metavar="text")
@option("auth-method", "The auth method that it belongs to.", default="", metavar="name")
@option("selector", "Only for logins whose claims fit this expression.", default="", metavar="expression")
@option("bind-type", "What logins get: role, policy or management.", default="", metavar="type")
@option("bind-name", "Its name; may hold ${value.NAME}.", default="", metavar="name")
@shaped
@api
def binding_rule_create(
    session: Session, description: str, auth_method: str, selector: str, bind_type: str, bind_name: str, shape: Shape
) -> None:
    """Make a binding rule: what logins of an auth method get."""
    if not auth_method:
        raise invalid("a binding rule needs -auth-method")
    if not bind_type:
        raise invalid("a binding rule needs -bind-type")
    body = {
        "Description": description,
        "AuthMethod": auth_method,
        "Selector": selector,
        "BindType": bind_type,
        "BindName": bind_name,
    }
    _show(session, session.nomad.put("/v1/acl/binding-rule", body).value, shape, _rule_text)


@command()
@argument("rule", shown="<rule id>")
@option("description", "What it is for.", metavar="text")
@option("selector", "Only for logins whose claims fit this expression.", metavar="expression")
@option("bind-type", "What logins get: role, policy or management.", metavar="type")
@option("bind-name", "Its name; may hold ${value.NAME}.", metavar="name")
@flag("no-merge", "Forget what no flag names, instead of keeping it.")
@shaped
@api
def binding_rule_update(
    session: Session,
    rule: str,
    description: str | None,
    selector: str | None,
    bind_type: str | None,
    bind_name: str | None,
    no_merge: bool,
    shape: Shape,
) -> None:
    """Change a binding rule."""
    before: Json = session.nomad.get(_rule_path(rule)).value
    if no_merge and not bind_type:
        raise invalid("-no-merge needs -bind-type")
    given = {"Description": description, "Selector": selector, "BindType": bind_type, "BindName": bind_name}
    kept = {key: "" if no_merge else before[key] for key in given}
    changed = {key: value for key, value in given.items() if value is not None}
    body = {"ID": before["ID"], "AuthMethod": before["AuthMethod"], **kept, **changed}
    _show(session, session.nomad.put(_rule_path(before["ID"]), body).value, shape, _rule_text)


@command()
@argument("rule", shown="<rule id>")
@api
def binding_rule_delete(session: Session, rule: str) -> None:
    """Delete a binding rule."""
    session.nomad.delete(_rule_path(rule))
    session.out.line(f"Deleted ACL binding rule {rule}")


@command()
@argument("rule", shown="<rule id>")
@shaped
@api
def binding_rule_info(session: Session, rule: str, shape: Shape) -> None:
    """Show a binding rule."""
    _show(session, session.nomad.get(_rule_path(rule)).value, shape, _rule_text)


@command()
@shaped
@api
def binding_rule_list(session: Session, shape: Shape) -> None:
    """List binding rules."""
    found = list(session.nomad.get("/v1/acl/binding-rules").value or [])
    columns = {"ID": "ID", "Description": "Description", "Auth Method": "AuthMethod"}
    _show_all(session, found, shape, "binding rules", columns)


# Logins


@command()
@option("method", "The auth method; else the default one.", default="", metavar="name")
@option("type", "OIDC or JWT: the default method of this type.", default="", metavar="type")
@option("login-token", "The JWT to show, for methods of type JWT.", default="", metavar="jwt")
@option("oidc-callback-addr", "Where the browser comes back to.", default="localhost:4649", metavar="host:port")
@shaped
@api
def login(session: Session, method: str, type: str, login_token: str, oidc_callback_addr: str, shape: Shape) -> None:
    """Get a token by an auth method, such as a provider of OpenID Connect in the browser."""
    chosen = _method(session, method, type, login_token)
    if chosen["Type"] == "JWT":
        if not login_token:
            raise invalid("-login-token is needed: the method is of type JWT")
        token = session.nomad.post("/v1/acl/login", {"AuthMethodName": chosen["Name"], "LoginToken": login_token}).value
    else:
        token = _in_the_browser(session, chosen["Name"], oidc_callback_addr)
    if shape:
        session.out.line(shape.render(token))
    else:
        session.out.line(f"Successfully logged in via {chosen['Type']} and {chosen['Name']}\n\n{token_text(token)}")


def _method(session: Session, name: str, kind: str, jwt: str) -> Json:
    methods = _methods(session)
    if name:
        found = next((each for each in methods if each["Name"] == name), None)
        if found is None:
            raise not_found(f'no auth method "{name}"; `lepa acl auth-method list` shows them')
        return found
    wanted = kind.upper() or ("JWT" if jwt else "")
    found = next((each for each in methods if each["Default"] and wanted in ("", each["Type"])), None)
    if found is None:
        raise not_found(f"no default auth method{f' of type {wanted}' if wanted else ''}: name one with -method")
    return found


def _in_the_browser(session: Session, method: str, address: str) -> Json:
    nonce = os.urandom(16).hex()
    with _callback(address) as server:
        about = {"AuthMethodName": method, "RedirectURI": f"http://{address}{CALLBACK_PATH}", "ClientNonce": nonce}
        url = session.nomad.post("/v1/acl/oidc/auth-url", about).value["AuthURL"]
        session.out.error(f"Complete the login via your OIDC provider. A browser opens; or open:\n\n    {url}\n")
        with contextlib.suppress(webbrowser.Error):
            webbrowser.open(url)
        came = server.wait()
    if "error" in came:
        raise LepaError("denied", came.get("error_description") or came["error"])
    done = {"State": came.get("state", ""), "Code": came.get("code", "")}
    token: Json = session.nomad.post("/v1/acl/oidc/complete-auth", about | done).value
    return token


class _Waiting(HTTPServer):
    """Waits for the browser to come back."""

    came: dict[str, str] | None = None
    timeout = WAIT_S

    def wait(self) -> dict[str, str]:
        """What the provider sent along."""
        while self.came is None:
            self.handle_request()
        return self.came

    def handle_timeout(self) -> None:
        """Nobody came."""
        raise LepaError("timeout", f"nobody came back from the provider within {WAIT_S:g} s")


class _Handler(BaseHTTPRequestHandler):
    server: _Waiting

    def do_GET(self) -> None:
        """The provider sends the browser here."""
        parts = urlsplit(self.path)
        here = parts.path == CALLBACK_PATH
        self.send_response(200 if here else 404)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.end_headers()
        self.wfile.write(b"You may close this window.\n" if here else b"Not here.\n")
        if here:
            self.server.came = dict(parse_qsl(parts.query))

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the terminal is the command's."""


@contextlib.contextmanager
def _callback(address: str) -> Iterator[_Waiting]:
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        raise invalid(f'-oidc-callback-addr is host:port, not "{address}"')
    try:
        server = _Waiting((host, int(port)), _Handler)
    except OSError as error:
        raise invalid(f"cannot listen on {address}: {error.strerror or error}") from error
    with server:
        yield server
