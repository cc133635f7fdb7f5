"""Pure: requests about shares of overlay networks."""

from lepa.model.overlay import OverlayLease
from lepa.rpc.requests import Request


class OverlayLeaseRequest(Request, frozen=True):
    """A node asks for its share of an overlay, or renews it. secret_id: the node's."""

    lease: OverlayLease = OverlayLease()
    secret_id: str = ""
