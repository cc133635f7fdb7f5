"""Pure: requests and answers about access control, identities, the keyring and variables."""

from typing import Any, Literal

from lepa.model.acl import (
    AclPolicy,
    AclRole,
    AclToken,
    AuthMethod,
    BindingRule,
    OneTimeToken,
    RootKeyMeta,
    VariableLock,
)
from lepa.model.wire import Wire
from lepa.rpc.requests import ReadRequest, Request

# Tokens and what they may


class BootstrapRequest(Request, frozen=True):
    """Make the first management token. bootstrap_secret: the secret it shall have, a UUID; "" makes one."""

    bootstrap_secret: str = ""


class PolicyWriteRequest(Request, frozen=True):
    """Create or change a policy, or delete it by name."""

    value: AclPolicy | None = None
    name: str = ""


class TokenListRequest(ReadRequest, frozen=True):
    """List tokens. global_only: those of all regions."""

    global_only: bool = False


class TokenWriteRequest(Request, frozen=True):
    """Create or change a token, or delete it by accessor."""

    value: AclToken | None = None
    accessor_id: str = ""


class OneTimeExchangeRequest(Request, frozen=True):
    """Exchange a one-time secret."""

    one_time_secret_id: str = ""


class OneTimeAnswer(Wire, frozen=True):
    """A one-time token that was made."""

    one_time_token: OneTimeToken = OneTimeToken()


class RoleWriteRequest(Request, frozen=True):
    """Create or change a role, or delete it by id."""

    value: AclRole | None = None
    id: str = ""


class AuthMethodWriteRequest(Request, frozen=True):
    """Create or change an auth method, or delete it by name."""

    value: AuthMethod | None = None
    name: str = ""


class BindingRuleWriteRequest(Request, frozen=True):
    """Create or change a binding rule, or delete it by id."""

    value: BindingRule | None = None
    id: str = ""


class LoginRequest(Request, frozen=True):
    """Log in with a JWT."""

    auth_method_name: str = ""
    login_token: str = ""


class OidcAuthUrlRequest(Request, frozen=True):
    """Begin a login with an OIDC provider. client_nonce: the caller's own, shown again when the login is completed."""

    auth_method_name: str = ""
    redirect_uri: str = ""
    client_nonce: str = ""


class OidcCompleteRequest(Request, frozen=True):
    """Complete a login: what the provider sent back, and what was sent to begin it."""

    auth_method_name: str = ""
    client_nonce: str = ""
    state: str = ""
    code: str = ""
    iss: str = ""
    redirect_uri: str = ""


class AuthorizeRequest(ReadRequest, frozen=True):
    """May the caller pass a door of an agent? door: a name of the table of rights. The rest: what it is about."""

    door: str = ""
    alloc_id: str = ""
    task: str = ""
    node_id: str = ""
    topics: dict[str, tuple[str, ...]] = {}


class Authorized(Wire, frozen=True):
    """They may. node_id, http_addr: the node of the allocation, or the one that was asked about; "" for none.

    authenticated: whether the caller showed a token that is known, whatever it may do.
    """

    node_id: str = ""
    http_addr: str = ""
    authenticated: bool = False


# Variables


class VariableApplyRequest(Request, frozen=True):
    """Change a variable. cas: for the operations that check. lock: whose it is, or what is asked for."""

    operation: Literal["set", "cas", "delete", "delete-cas", "lock-acquire", "lock-release", "lock-renew"] = "set"
    path: str = ""
    items: dict[str, str] = {}
    lock: VariableLock | None = None
    cas: int = 0


class VariableView(Wire, frozen=True):
    """A variable as it is shown. items None: without them."""

    namespace: str = ""
    path: str = ""
    lock: VariableLock | None = None
    create_index: int = 0
    create_time: int = 0
    modify_index: int = 0
    modify_time: int = 0
    items: dict[str, str] | None = None


class VariableApplied(Wire, frozen=True):
    """What became of it: the variable as it is now, or what stood in the way."""

    output: VariableView | None = None
    conflict: VariableView | None = None


# Keyring and identities


class KeyringRotateRequest(Request, frozen=True):
    """Make a new root key. full: encrypt all variables with it. publish_time: until then (Unix nanoseconds) it is only
    shown, so that others learn of it before it signs."""

    full: bool = False
    publish_time: int = 0


class KeyringDeleteRequest(Request, frozen=True):
    """Remove a root key. force: also when something may still need it."""

    id: str = ""
    force: bool = False


class KeyringRotated(Wire, frozen=True):
    """The new key."""

    key: RootKeyMeta = RootKeyMeta()
    index: int = 0


class PublicKeys(Wire, frozen=True):
    """What identities are checked with. keys: as RFC 7517 has them. max_age_s: for how long they surely hold.
    issuer: who signs, "" where nobody is named."""

    keys: tuple[dict[str, Any], ...] = ()
    max_age_s: int = 0
    issuer: str = ""


class IdentityWanted(Wire, frozen=True):
    """An identity of a task of an allocation, by its name in the job."""

    alloc_id: str = ""
    task: str = ""
    identity: str = ""
    service: str = ""


class SignIdentitiesRequest(Request, frozen=True):
    """A node asks for identities of its tasks."""

    node_id: str = ""
    secret_id: str = ""
    wanted: tuple[IdentityWanted, ...] = ()


class SignedIdentity(Wire, frozen=True):
    """A signed identity. expires_at: Unix nanoseconds; 0: never. error: why there is none."""

    wanted: IdentityWanted = IdentityWanted()
    jwt: str = ""
    expires_at: int = 0
    error: str = ""
