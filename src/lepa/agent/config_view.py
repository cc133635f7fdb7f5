"""The settings in force as the agent shows them: without secrets."""

import re
from typing import Any

import msgspec

from lepa.agent.config import Config
from lepa.model.wire import to_builtins

REDACTED = "<redacted>"
SECRET_NAMES = ("auth", "encrypt", "key", "password", "secret", "secret_id", "token")
"""Of texts in blocks whose settings are not known here (`vault`, those of drivers); also how such a name may end."""
_USER = re.compile(r"(?<=://)[^/?#\s]*@")


def shown(config: Config) -> dict[str, Any]:
    """The tree as /v1/agent/self shows it, without secrets: the settings that are said to be some, what is called so
    where settings are not known, and names and passwords in URLs."""
    found = _redacted(to_builtins(config), msgspec.inspect.type_info(Config))
    assert isinstance(found, dict)
    return found


def _redacted(value: Any, known: msgspec.inspect.Type) -> Any:
    """Builtins of a known type without its secrets."""
    if isinstance(known, msgspec.inspect.Metadata) and (known.extra or {}).get("secret"):
        return REDACTED if value else value
    if isinstance(known, msgspec.inspect.StructType):
        kinds = {field.encode_name: field.type for field in known.fields}
        return {key: _redacted(item, kinds[key]) for key, item in value.items()}
    if isinstance(known, msgspec.inspect.DictType) and not isinstance(known.value_type, msgspec.inspect.AnyType):
        return {key: _redacted(item, known.value_type) for key, item in value.items()}
    return _unnamed(value)


def _unnamed(value: Any) -> Any:
    """Builtins without what is called a secret."""
    if isinstance(value, dict):
        return {
            key: REDACTED if item and isinstance(item, str) and _called_secret(key) else _unnamed(item)
            for key, item in value.items()
        }
    if isinstance(value, str):
        return _USER.sub(f"{REDACTED}@", value)
    return [_unnamed(item) for item in value] if isinstance(value, list | tuple) else value


def _called_secret(name: str) -> bool:
    return any(name.lower() == word or name.lower().endswith(f"_{word}") for word in SECRET_NAMES)
