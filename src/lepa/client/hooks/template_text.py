"""Pure: renders one template block: Go's template language with the functions that job files use.

What a template asks for and is not known yet (instances of a service) is noted in `Rendering.missing`, and stands in
the text as if it were empty; the hook finds out and renders again.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from lepa.client.hooks import template_functions
from lepa.client.hooks.template_settings import DENIED
from lepa.kit import go_template
from lepa.kit.go_template import FunctionError, TemplateError
from lepa.model.errors import invalid
from lepa.model.service import ServiceRegistration

SERVICE, SERVICES = "service", "services"
VARIABLE, MAYBE_VARIABLE, VARIABLES = "variable", "maybe-variable", "variables"

DISABLED = DENIED
"""What no template may use unless the operator says otherwise; they would act as the agent."""
ABSENT = (
    "key",
    "keyExists",
    "keyOrDefault",
    "ls",
    "safeLs",
    "tree",
    "safeTree",
    "secret",
    "secrets",
    "pkiCert",
    "node",
    "nodes",
    "datacenters",
    "connect",
    "caRoots",
    "caLeaf",
    "partitions",
    "peerings",
    "exportedServices",
)
NEEDS = {"key": "a key-value store", "ls": "a key-value store", "secret": "a secret store"}


class Need(NamedTuple):
    """Something to find out: instances of the service `name`, or (kind "services") the names of all services; the
    variable `name`, which may have to be there; the variables below the path `name`."""

    kind: str
    name: str = ""


class World(Protocol):
    """What a template may see."""

    env: Mapping[str, str]
    now_ns: int

    def known(self, need: Need) -> Sequence[Any] | None:
        """What is known, None while it is not."""

    def read_file(self, path: str) -> str:
        """A file of the allocation. Raises LepaError."""


class Rendering(NamedTuple):
    """A text, everything it depends on, and what of that is not known yet."""

    text: str
    needs: frozenset[Need]
    missing: frozenset[Need]


def render(
    text: str,
    world: World,
    *,
    left: str = "{{",
    right: str = "}}",
    strict: bool = False,
    denied: Sequence[str] = DISABLED,
) -> Rendering:
    """Render a template. Raises LepaError(invalid).

    strict: a key that a map does not have is an error. denied: functions that this node does not allow.
    """
    asked = _Asked(world, denied, strict=strict)
    try:
        rendered = go_template.parse(with_delimiters(text, left, right), asked.functions()).render(None)
    except TemplateError as error:
        raise invalid(f"template: {error}") from error
    return Rendering(rendered, frozenset(asked.needs), frozenset(asked.missing))


class _Asked:
    """The functions of one rendering, and what they were asked."""

    def __init__(self, world: World, denied: Sequence[str], *, strict: bool) -> None:
        self._world = world
        self._denied = denied
        self._strict = strict
        self.needs: set[Need] = set()
        self.missing: set[Need] = set()

    def functions(self) -> dict[str, Callable[..., Any]]:
        own: dict[str, Callable[..., Any]] = {
            "env": lambda name: self._world.env.get(name, ""),
            "envOrDefault": lambda name, default: self._world.env.get(name) or default,
            "mustEnv": self._must_env,
            "file": self._world.read_file,
            "timestamp": lambda layout="": template_functions.timestamp(self._world.now_ns, layout),
            "nomadService": self._nomad_service,
            "nomadServices": self._names,
            "nomadVar": self._variable,
            "nomadVarExists": lambda path: bool(self._ask(Need(MAYBE_VARIABLE, str(path)))),
            "nomadVarList": self._variables,
            "nomadVarListSafe": self._variables,
            "nomadVarListExists": lambda prefix="": bool(self._variables(prefix)),
            "service": self._service,
            "services": self._names,
            "parseJSON": lambda text: self._map(template_functions.parse_json(text)),
        }
        refused = {name: _refusing(f"{name} is not allowed on this node") for name in self._denied}
        absent = {name: _refusing(_absence(name)) for name in (*ABSENT, *DISABLED)}
        return template_functions.TEXT | own | absent | refused

    def _must_env(self, name: str) -> str:
        if name not in self._world.env:
            raise FunctionError(f"{name} is not set")
        return self._world.env[name]

    def _ask(self, need: Need) -> Sequence[Any]:
        self.needs.add(need)
        if (found := self._world.known(need)) is None:
            self.missing.add(need)
            return ()
        return found

    def _names(self, *_: str) -> Any:
        return [self._map({"Name": name, "Tags": list(tags)}) for name, tags in self._ask(Need(SERVICES))]

    def _nomad_service(self, *words: Any) -> Any:
        """`nomadService "name"`, or `nomadService 3 "key" "name"` for three that stay the same for a key."""
        if len(words) == 3:
            count, key, name = words
            return self._instances(str(name), lambda found: template_functions.choose(found, int(count), str(key)))
        if len(words) != 1:
            raise FunctionError("expected a name, or a number, a key and a name")
        return self._instances(str(words[0]))

    def _variable(self, path: str) -> Any:
        """The items of a variable; an empty map while it is not known."""
        found = self._ask(Need(VARIABLE, str(path)))
        return self._map(dict(found[0])) if found else {}

    def _variables(self, prefix: str = "") -> list[Any]:
        """Variables below a path, without their items."""
        return [self._map(dict(stub)) for stub in self._ask(Need(VARIABLES, str(prefix)))]

    def _service(self, query: str, *filters: str) -> Any:
        """`service "tag.name"`: passing instances; with "any" or a list of statuses as filter, others too."""
        name, _, _ = query.partition("|")
        tag, _, name = name.partition("@")[0].rpartition(".")
        wanted = {status.strip() for status in (filters[0] if filters else "passing").split(",")}

        def fitting(found: Sequence[ServiceRegistration]) -> Sequence[ServiceRegistration]:
            return [
                instance
                for instance in found
                if (not tag or tag in instance.tags) and ("any" in wanted or instance.status in wanted)
            ]

        return self._instances(name, fitting)

    def _instances(
        self, name: str, pick: Callable[[Sequence[ServiceRegistration]], Sequence[ServiceRegistration]] = list
    ) -> list[Any]:
        found: Sequence[ServiceRegistration] = self._ask(Need(SERVICE, name))
        return [self._map(template_functions.instance(each)) for each in pick(found)]

    def _map(self, value: Any) -> Any:
        return template_functions.strict(value) if self._strict else value


def _refusing(reason: str) -> Callable[..., Any]:
    def refuse(*_: Any) -> Any:
        raise FunctionError(reason)

    return refuse


def _absence(name: str) -> str:
    what = next((what for start, what in NEEDS.items() if name.startswith(start)), "an outside system")
    return f"{name} needs {what}, which this cluster does not have"


def with_delimiters(text: str, left: str, right: str) -> str:
    """The template with Go's delimiters in place of its own; `{{` in its plain text stays plain text."""
    if (left, right) in {("{{", "}}"), ("", "")}:
        return text
    done, position = [], 0
    while (start := text.find(left, position)) >= 0:
        done.append(text[position:start].replace("{{", '{{"{{"}}'))
        end = _end_of_action(text, start + len(left), right)
        if end < 0:
            raise invalid(f'template: action is not closed by "{right}"')
        done.append("{{" + text[start + len(left) : end] + "}}")
        position = end + len(right)
    done.append(text[position:].replace("{{", '{{"{{"}}'))
    return "".join(done)


def _end_of_action(text: str, position: int, right: str) -> int:
    """Where the action that begins at `position` is closed: not within quotes."""
    quote = ""
    while position < len(text):
        sign = text[position]
        if quote:
            if sign == "\\" and quote == '"':
                position += 1
            elif sign == quote:
                quote = ""
        elif text.startswith(right, position):
            return position
        elif sign in '"`':
            quote = sign
        position += 1
    return -1
