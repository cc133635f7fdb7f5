"""Pure: instances of services that nodes and machines outside the cluster register and withdraw."""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from lepa.model.errors import conflict, invalid, not_found
from lepa.model.service import ServiceRegistration
from lepa.state import keys
from lepa.state.commands.draft import Draft
from lepa.state.job_tally import TERMINAL_CLIENT_STATUSES

NAME_MAX: Final = 512
STATUSES: Final = ("passing", "warning", "critical")


def register_services(draft: Draft, node_id: str, services: Iterable[ServiceRegistration]) -> None:
    """Store instances. One of an allocation that has ended, or that says what is stored already, is not written."""
    for service in services:
        alloc = draft.allocation(service.alloc_id)
        if alloc is None or alloc.client_status in TERMINAL_CLIENT_STATUSES:
            continue
        _store(draft, replace(service, node_id=node_id or service.node_id))


def register_outside(draft: Draft, service: ServiceRegistration) -> None:
    """Store an instance that is not part of a job: of a node of the cluster, or of a machine with name and address."""
    namespace = service.namespace or "default"
    if not service.service_name or not service.id:
        raise invalid("an instance of a service needs a name and an id")
    if max(len(service.service_name), len(service.id)) > NAME_MAX:
        raise invalid(f"names and ids of services have at most {NAME_MAX} characters")
    if draft.snapshot.namespace(namespace) is None:
        raise invalid(f'namespace "{namespace}" does not exist')
    if service.status not in STATUSES or any(check.status not in STATUSES for check in service.checks):
        raise invalid(f"a status is one of {', '.join(STATUSES)}")
    if service.node_id and draft.node(service.node_id) is None:
        raise not_found(f'node "{service.node_id}" is not known')
    if not service.node_id and not service.node_name:
        raise invalid("an instance from outside the jobs needs a node: a NodeID, or NodeName and NodeAddress")
    present = draft.snapshot.service(namespace, service.service_name, service.id)
    if present is not None and present.alloc_id:
        raise conflict(f'"{service.id}" belongs to allocation {present.alloc_id}; give the instance another id')
    _store(draft, replace(service, namespace=namespace, alloc_id="", job_id=""))


def _store(draft: Draft, wanted: ServiceRegistration) -> None:
    present = draft.snapshot.service(wanted.namespace, wanted.service_name, wanted.id)
    if (
        present is None
        or replace(wanted, create_index=present.create_index, modify_index=present.modify_index) != present
    ):
        draft.overwrite(keys.service_key(wanted.namespace, wanted.service_name, wanted.id), wanted)


def withdraw_service(draft: Draft, namespace: str, name: str, service_id: str) -> None:
    """Remove one instance by the names that a person gave."""
    if draft.snapshot.service(namespace, name, service_id) is None:
        raise not_found("service registration not found")
    draft.erase(keys.service_key(namespace, name, service_id))


def withdraw_all_of_node(draft: Draft, node_id: str) -> None:
    """Remove every instance of a node that is forgotten, those from outside the jobs too."""
    for service in draft.snapshot.node_services(node_id):
        draft.erase(keys.service_key(service.namespace, service.service_name, service.id))


def withdraw_node_services(draft: Draft, node_id: str, service_ids: Iterable[str]) -> None:
    """Remove instances of a node by id; those that are not there are gone already."""
    wanted = set(service_ids)
    for service in draft.snapshot.node_services(node_id):
        if service.id in wanted:
            draft.erase(keys.service_key(service.namespace, service.service_name, service.id))
