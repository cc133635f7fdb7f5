"""What all connections of one ingress share, all of it owned by the loop's thread."""

import logging

from lepa.ingress.access_log import AccessLog
from lepa.ingress.connector import Connector
from lepa.ingress.counters import Counters
from lepa.ingress.event_loop import EventLoop
from lepa.ingress.heads import Memo, RequestHead
from lepa.ingress.picker import Picker
from lepa.ingress.routes import Route, RouteTable, Target
from lepa.ingress.settings import IngressSettings
from lepa.ingress.tunnel import Pipes
from lepa.ingress.upstreams import Upstreams

log = logging.getLogger(__name__)


class Traffic:
    """The table in force, and everything that outlives a single connection. access_log: where requests are logged."""

    def __init__(
        self, loop: EventLoop, settings: IngressSettings, seed: int, access_log: AccessLog | None = None
    ) -> None:
        self.loop = loop
        self.settings = settings
        self.idle_s = settings.idle_s
        self.response_s = settings.response_s
        self.redirects = settings.redirect_https and bool(settings.https)
        self.serial = 1
        """Tells tables apart."""
        self.table = RouteTable({}, (), settings.rules(), 0)
        self.picker = Picker(settings.strategy, seed)
        self.connector = Connector(loop, settings.connect_s)
        self.upstreams = Upstreams(loop)
        self.pipes = Pipes()
        self.memo = Memo()
        self.counters = Counters()
        self.draining = False
        self.knows_routes = False
        """Whether a table has come."""
        self.open = 0
        self.access_log = access_log

    def swap(self, table: RouteTable) -> None:
        """Route by another table from now on."""
        self.table = table
        self.serial += 1
        self.knows_routes = True

    def route_of(self, request: RequestHead, *, tls: bool) -> Route | None:
        """The route of a request. Heads are remembered, and each remembers its route for as long as the table stays."""
        routed = 2 * self.serial + tls
        if request.routed != routed:
            request.route = self.table.match(request.host, request.path, tls=tls)
            request.routed = routed
        return request.route

    def refused(self, target: Target, reason: str) -> None:
        """A target took no connection, or ended it without a word."""
        was_in = self.picker.is_in(target.key, self.loop.now)
        out_s = self.picker.refused(target.key, self.loop.now)
        self.counters.of(target.service).failed += 1
        if was_in:
            log.warning(
                "target refused service=%s target=%s reason=%r out_s=%g", target.service, target.key, reason, out_s
            )

    def close(self) -> None:
        """Give back what is kept for later; connections have ended before."""
        self.connector.close()
        self.upstreams.close()
        self.pipes.close()
