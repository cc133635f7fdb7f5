"""Pure: what servers of one region say to each other: who they are, that they live, and what they schedule."""

from lepa.model.evaluation import Evaluation
from lepa.model.plan import Plan
from lepa.model.wire import Wire
from lepa.rpc.requests import Request


class ServerRecord(Wire, frozen=True):
    """A server as it says itself. name: unique in the region. Addresses are `host:port`."""

    name: str = ""
    rpc_address: str = ""
    http_address: str = ""
    region: str = "global"
    datacenter: str = "dc1"
    build: str = ""


class PulseRequest(Request, frozen=True):
    """A follower tells the leader that it lives. name: its own. index: of its snapshot."""

    name: str = ""
    index: int = 0


class Pulse(Wire, frozen=True):
    """What the leader knows: index of its snapshot; of each server by name whether it is "alive" or "failed", and how
    long its word to the leader is overdue."""

    index: int = 0
    statuses: dict[str, str] = {}
    overdue_ms: dict[str, int] = {}


class EvalDequeueRequest(Request, frozen=True):
    """A follower asks for evaluations of these scheduler types: at most `most`, within wait_s.

    server: its name. holding: the tokens of deliveries that it still works on; what else it was given before got lost
    on the way and is given to somebody else.
    """

    server: str = ""
    types: tuple[str, ...] = ()
    most: int = 1
    wait_s: float = 1.0
    holding: tuple[str, ...] = ()


class EvalDelivery(Wire, frozen=True):
    """An evaluation to process on a snapshot of wait_index or newer; token names the delivery."""

    evaluation: Evaluation = Evaluation()
    token: str = ""
    wait_index: int = 0


class EvalDoneRequest(Request, frozen=True):
    """A delivery is done (fine), its last write at `index`; or it could not be done.

    keep: its plan is the leader's to make: it is too large to send, or the plans of others came first.
    """

    eval_id: str = ""
    token: str = ""
    fine: bool = True
    keep: bool = False
    index: int = 0


class EvalCloseRequest(Request, frozen=True):
    """An evaluation that needs no plan has ended like this, and these follow."""

    token: str = ""
    evaluation: Evaluation = Evaluation()
    new_evaluations: tuple[Evaluation, ...] = ()


class PlanSubmitRequest(Request, frozen=True):
    """A plan to be checked and applied. evaluation, new_evaluations: as in `lepa.scheduler.outcome.Outcome`."""

    plan: Plan = Plan()
    evaluation: Evaluation = Evaluation()
    new_evaluations: tuple[Evaluation, ...] = ()
