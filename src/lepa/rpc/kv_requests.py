"""Pure: requests and answers about keys and sessions."""

from lepa.model.kv import KvEntry, KvError, KvOperation, Session
from lepa.model.wire import Wire
from lepa.rpc.requests import Request


class KvApplyRequest(Request, frozen=True):
    """Operations that are done together or not at all."""

    operations: tuple[KvOperation, ...] = ()


class KvApplied(Wire, frozen=True):
    """Whether all was done, else what stood in the way. entries: what was read and written, in order."""

    applied: bool = True
    entries: tuple[KvEntry, ...] = ()
    errors: tuple[KvError, ...] = ()


class SessionCreateRequest(Request, frozen=True):
    """A session to begin; its id is the server's to choose."""

    session: Session = Session()


class SessionRequest(Request, frozen=True):
    """Renew or end a session."""

    id: str = ""
