"""The few calls of Nomad's HTTP API that serving needs, over the standard library."""

import http.client
import json
import urllib.parse
from typing import Any

from lepa.model.errors import Code, LepaError
from lepa.serving.addresses import Address

Json = dict[str, Any]

API_TIMEOUT_S = 10.0

_CODES: dict[int, Code] = {404: "not_found", 403: "denied", 400: "invalid", 409: "conflict"}


class NomadApi:
    """One agent, for one namespace."""

    def __init__(self, address: Address, namespace: str, token: str) -> None:
        self.address = address
        self.token = token
        self._namespace = namespace
        self._headers = {"Content-Type": "application/json", **({"X-Nomad-Token": token} if token else {})}

    def call(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        """The decoded answer. Raises LepaError with the API's own sentence; not_found for 404."""
        return json.loads(self.read(method, path, body, **query) or b"null")

    def read(self, method: str, path: str, body: Any = None, **query: str) -> bytes:
        """The answer's bytes."""
        asked = f"{path}?{urllib.parse.urlencode({'namespace': self._namespace, **query})}"
        connection = http.client.HTTPConnection(*self.address, timeout=API_TIMEOUT_S)
        try:
            connection.request(method, asked, None if body is None else json.dumps(body), self._headers)
            response = connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise LepaError("timeout", f"{method} {path}: nobody answers at {self.address}: {error}") from error
        finally:
            connection.close()
        if response.status not in (200, 204):
            code = _CODES.get(response.status, "internal")
            raise LepaError(code, f"{method} {path}: {answer.decode(errors='replace').strip()}")
        return answer

    def submit(self, job: Json) -> None:
        self.call("PUT", "/v1/jobs", {"Job": job})

    def job(self, job_id: str) -> Json | None:
        """A job that is not stopped, or None."""
        try:
            job: Json = self.call("GET", f"/v1/job/{urllib.parse.quote(job_id)}")
        except LepaError as error:
            if error.code != "not_found":
                raise
            return None
        return None if job.get("Stop") else job

    def job_ids(self, prefix: str) -> list[str]:
        return [stub["ID"] for stub in self.call("GET", "/v1/jobs", prefix=prefix) or ()]

    def stop(self, job_id: str) -> None:
        self.call("DELETE", f"/v1/job/{urllib.parse.quote(job_id)}", purge="true")

    def allocations(self, job_id: str) -> list[Json]:
        return self.call("GET", f"/v1/job/{urllib.parse.quote(job_id)}/allocations") or []

    def log(self, allocation: str, task: str, kind: str) -> bytes:
        query = {"task": task, "type": kind, "plain": "true", "origin": "start"}
        return self.read("GET", f"/v1/client/fs/logs/{allocation}", **query)

    def variable(self, path: str) -> Json | None:
        """A variable with its items, or None."""
        try:
            found: Json = self.call("GET", f"/v1/var/{urllib.parse.quote(path)}")
        except LepaError as error:
            if error.code != "not_found":
                raise
            return None
        return found

    def put_variable(self, path: str, items: dict[str, str], cas: int | None = None) -> int:
        """Write a variable; its new ModifyIndex. cas: the ModifyIndex that it must have, 0 for a new one; else raises
        LepaError(conflict)."""
        query = {} if cas is None else {"cas": str(cas)}
        body = {"Path": path, "Items": items}
        written: Json = self.call("PUT", f"/v1/var/{urllib.parse.quote(path)}", body, **query)
        return int(written["ModifyIndex"])

    def delete_variable(self, path: str) -> None:
        self.read("DELETE", f"/v1/var/{urllib.parse.quote(path)}")

    def variable_paths(self, prefix: str) -> list[str]:
        return [each["Path"] for each in self.call("GET", "/v1/vars", prefix=prefix) or ()]
