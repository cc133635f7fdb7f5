"""Fetches artifacts from object stores, S3 and Google's, by `obstore` (the extra `lepa[obstore]`).

A key is one file, or the beginning of several names: then all of them are fetched. Credentials are the job's own, or
the agent's where the operator lets artifacts have them (`set_environment_variables`); else the store is asked as
anybody may ask it.
"""

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lepa.client import confined
from lepa.client.hooks.artifact_settings import ArtifactSettings
from lepa.client.hooks.artifact_source import Source
from lepa.client.hooks.artifact_tools import require_allowed
from lepa.model.errors import LepaError

RETRIES_MAX, SAID_MAX = 2, 500
AWS_VARIABLE, GOOGLE_VARIABLES = "AWS_ACCESS_KEY_ID", ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_APPLICATION_CREDENTIALS")
GCS_HOST = "https://storage.googleapis.com"


async def fetch_objects(source: Source, single: Path, content: Path, settings: ArtifactSettings) -> bool:
    """Fetch the object that the key names to `single`, True; or all below it into `content`, False.

    Raises LepaError.
    """
    try:
        import obstore
        from obstore.exceptions import BaseError
    except ImportError as error:
        text = f"{source.kind} artifacts need obstore on this node: pip install lepa[obstore]"
        raise LepaError("unsupported", text) from error
    place = source.place
    await require_allowed(urlsplit(place.endpoint or GCS_HOST).hostname or "", settings)
    store = _store(source, settings)
    left = settings.http_bytes_max
    try:
        async with asyncio.timeout(settings.http_s):
            keys = await _keys(obstore, store, place.key, settings.files_max)
            for key in keys:
                left = await _fetch(obstore, store, key, _target(content, place.key, key) or single, left)
    except TimeoutError as error:
        raise LepaError("timeout", f"not finished within {settings.http_s:g} s") from error
    except (BaseError, OSError) as error:
        said = str(error).splitlines() or [type(error).__name__]
        raise LepaError("internal", f"{source.kind}: {said[0][:SAID_MAX]}") from error
    return keys == [place.key]


async def _fetch(obstore: Any, store: Any, key: str, target: Path, left: int) -> int:
    """Write one object; how many bytes may still come."""
    answer = await obstore.get_async(store, key)
    with target.open("wb") as file:
        async for chunk in answer.stream():
            left -= len(chunk)
            if left < 0:
                raise LepaError("invalid", "it is larger than http_max_size")
            await asyncio.to_thread(file.write, chunk)
    return left


def _target(content: Path, wanted: str, key: str) -> Path | None:
    """Where an object below the wanted key goes; None for the wanted one itself. Raises LepaError for odd names."""
    if key == wanted:
        return None
    name = key.removeprefix(wanted.rstrip("/")).lstrip("/")
    path = confined.inside(content, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


async def _keys(obstore: Any, store: Any, key: str, files_max: int) -> list[str]:
    """The object of this name, else all below it."""
    with contextlib.suppress(FileNotFoundError):
        await obstore.head_async(store, key)
        return [key]
    found: list[str] = []
    async for batch in obstore.list(store, prefix=key.rstrip("/") + "/"):
        found += [str(each["path"]) for each in batch]
        if len(found) > files_max:
            raise LepaError("invalid", f"there are more than {files_max} objects below {key!r}")
    if not found:
        raise LepaError("internal", f"there is no object {key!r}, and none below it")
    return found


def _store(source: Source, settings: ArtifactSettings) -> Any:
    from obstore.store import GCSStore, S3Store

    place, own = source.place, source.credentials
    common: dict[str, Any] = {
        "client_options": {"allow_http": True, "timeout": f"{max(1, int(settings.http_s))}s"},
        "retry_config": {"max_retries": RETRIES_MAX},
    }
    if source.kind == "gcs":
        agents = any(name in settings.environment and name in os.environ for name in GOOGLE_VARIABLES)
        return GCSStore(place.bucket, skip_signature=not agents, **common)
    if own:
        names = {"id": "access_key_id", "secret": "secret_access_key", "token": "session_token"}
        signed: dict[str, Any] = {names[name]: value for name, value in own.items()}
    else:
        signed = {"skip_signature": not (AWS_VARIABLE in settings.environment and AWS_VARIABLE in os.environ)}
    return S3Store(
        place.bucket,
        endpoint=place.endpoint,
        region=place.region or "us-east-1",
        virtual_hosted_style_request=False,
        **signed,
        **common,
    )
