"""Pure: instances of services that nodes register and withdraw."""

from collections.abc import Iterable

from msgspec.structs import replace

from lepa.model.errors import not_found
from lepa.model.service import ServiceRegistration
from lepa.state import keys
from lepa.state.commands.draft import Draft
from lepa.state.job_tally import TERMINAL_CLIENT_STATUSES


def register_services(draft: Draft, node_id: str, services: Iterable[ServiceRegistration]) -> None:
    """Store instances. One of an allocation that has ended, or that says what is stored already, is not written."""
    for service in services:
        alloc = draft.allocation(service.alloc_id)
        if alloc is None or alloc.client_status in TERMINAL_CLIENT_STATUSES:
            continue
        wanted = replace(service, node_id=node_id or service.node_id)
        present = draft.snapshot.service(service.namespace, service.service_name, service.id)
        if (
            present is None
            or replace(wanted, create_index=present.create_index, modify_index=present.modify_index) != present
        ):
            draft.overwrite(keys.service_key(service.namespace, service.service_name, service.id), wanted)


def withdraw_service(draft: Draft, namespace: str, name: str, service_id: str) -> None:
    """Remove one instance by the names that a person gave."""
    if draft.snapshot.service(namespace, name, service_id) is None:
        raise not_found("service registration not found")
    draft.erase(keys.service_key(namespace, name, service_id))


def withdraw_node_services(draft: Draft, node_id: str, service_ids: Iterable[str]) -> None:
    """Remove instances of a node by id; those that are not there are gone already."""
    wanted = set(service_ids)
    for service in draft.snapshot.node_services(node_id):
        if service.id in wanted:
            draft.erase(keys.service_key(service.namespace, service.service_name, service.id))
