"""Pure: the path a target is asked for: prefixes removed and put before."""

from urllib.parse import quote

from lepa.ingress.route_spec import Options
from lepa.ingress.routes import plain_path


def written_target(target: bytes, options: Options) -> tuple[bytes, str]:
    """Path and query for the target of a route, and the prefix that was removed.

    The first of `strip` that the path begins with is removed; what is left begins with a slash in any case. A path that
    begins with it only once its escapes are resolved is written anew.
    """
    if not options.strip and not options.prepend:
        return target, ""
    raw, mark, query = target.partition(b"?")
    path = raw.decode("latin-1")
    stripped = ""
    if options.strip:
        path, stripped = _without_prefix(path, options.strip)
    if options.prepend:
        path = options.prepend + path if path.startswith("/") else f"{options.prepend}/{path}"
    return path.encode("latin-1") + mark + query, stripped


def _without_prefix(path: str, prefixes: tuple[str, ...]) -> tuple[str, str]:
    for prefix in prefixes:
        if path.startswith(prefix):
            return _rooted(path[len(prefix) :]), prefix
    resolved = plain_path(path)
    for prefix in prefixes:
        if resolved.startswith(prefix):
            return _rooted(quote(resolved[len(prefix) :], safe="/:@!$&'()*+,;=~")), prefix
    return path, ""


def _rooted(path: str) -> str:
    return path if path.startswith("/") else f"/{path}"
