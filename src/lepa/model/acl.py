"""Pure: access control: policies, tokens, roles, and how people from elsewhere get tokens.

Times are RFC 3339 texts, as the API shows them; durations are nanoseconds here and texts ("8h0m0s") in the API.
"""

import hashlib
from typing import Any, Final

from msgspec import field
from msgspec.structs import replace

from lepa.kit.durations import ZERO_TIME
from lepa.model.wire import OmitEmpty, Wire, to_msgpack

ANONYMOUS: Final = "anonymous"
"""The accessor of whoever shows no token, and the policy that says what they may do."""

CLIENT: Final = "client"
MANAGEMENT: Final = "management"


class JobAcl(Wire, frozen=True):
    """The workloads that a policy is attached to: "" for all groups, or all tasks, of the job."""

    namespace: str = ""
    job_id: str = ""
    group: str = ""
    task: str = ""


class AclPolicy(Wire, frozen=True):
    """A named set of rules, in HCL or JSON."""

    name: str = ""
    description: str = ""
    rules: str = ""
    job_acl: JobAcl | None = field(default=None, name="JobACL")
    hash: bytes = b""
    create_index: int = 0
    modify_index: int = 0


class AclPolicyListStub(Wire, frozen=True):
    """A policy in a list."""

    name: str = ""
    description: str = ""
    hash: bytes = b""
    create_index: int = 0
    modify_index: int = 0


class RoleLink(Wire, frozen=True):
    """A role of a token. Tokens are stored with the id alone; the name is filled in when they are shown."""

    id: str = ""
    name: str = ""


class AclToken(Wire, frozen=True):
    """What a caller shows. expiration_time None: it does not expire."""

    accessor_id: str = ""
    secret_id: str = ""
    name: str = ""
    type: str = ""
    policies: tuple[str, ...] = ()
    roles: tuple[RoleLink, ...] = ()
    global_: bool = field(default=False, name="Global")
    hash: bytes = b""
    create_time: str = ZERO_TIME
    expiration_time: str | None = None
    expiration_ttl: int = 0
    create_index: int = 0
    modify_index: int = 0


class AclTokenListStub(Wire, frozen=True):
    """A token in a list: without its secret."""

    accessor_id: str = ""
    name: str = ""
    type: str = ""
    policies: tuple[str, ...] = ()
    roles: tuple[RoleLink, ...] = ()
    global_: bool = field(default=False, name="Global")
    hash: bytes = b""
    create_time: str = ZERO_TIME
    expiration_time: str | None = None
    create_index: int = 0
    modify_index: int = 0


class OneTimeToken(Wire, frozen=True):
    """A secret that is exchanged once for the token `accessor_id`."""

    one_time_secret_id: str = ""
    accessor_id: str = ""
    expires_at: str = ZERO_TIME
    create_index: int = 0
    modify_index: int = 0


class PolicyLink(Wire, frozen=True):
    """A policy of a role."""

    name: str = ""


class AclRole(Wire, frozen=True):
    """A named set of policies."""

    id: str = ""
    name: str = ""
    description: str = ""
    policies: tuple[PolicyLink, ...] = ()
    hash: bytes = b""
    create_index: int = 0
    modify_index: int = 0


class AuthMethodConfig(Wire, frozen=True):
    """How logins of one kind are checked. Leeways are nanoseconds; 0 takes 150 s, of the clock's skew 60 s."""

    jwt_validation_pub_keys: tuple[str, ...] = field(default=(), name="JWTValidationPubKeys")
    jwks_url: str = field(default="", name="JWKSURL")
    jwks_ca_cert: str = field(default="", name="JWKSCACert")
    oidc_discovery_url: str = field(default="", name="OIDCDiscoveryURL")
    oidc_client_id: str = field(default="", name="OIDCClientID")
    oidc_client_secret: str = field(default="", name="OIDCClientSecret")
    oidc_client_assertion: dict[str, Any] | None = field(default=None, name="OIDCClientAssertion")
    oidc_enable_pkce: bool = field(default=False, name="OIDCEnablePKCE")
    oidc_disable_user_info: bool = field(default=False, name="OIDCDisableUserInfo")
    oidc_scopes: tuple[str, ...] = field(default=(), name="OIDCScopes")
    bound_audiences: tuple[str, ...] = ()
    bound_issuer: tuple[str, ...] = ()
    allowed_redirect_uris: tuple[str, ...] = field(default=(), name="AllowedRedirectURIs")
    discovery_ca_pem: tuple[str, ...] = field(default=(), name="DiscoveryCaPem")
    signing_algs: tuple[str, ...] = ()
    expiration_leeway: int = 0
    not_before_leeway: int = 0
    clock_skew_leeway: int = 0
    claim_mappings: dict[str, str] = {}
    list_claim_mappings: dict[str, str] = {}
    verbose_logging: bool = False


class AuthMethod(Wire, frozen=True):
    """A way to log in: with a JWT that somebody else signed, or with an OIDC provider."""

    name: str = ""
    type: str = ""
    token_locality: str = ""
    token_name_format: str = ""
    max_token_ttl: int = 0
    default: bool = False
    config: AuthMethodConfig = AuthMethodConfig()
    hash: bytes = b""
    create_time: str = ZERO_TIME
    modify_time: str = ZERO_TIME
    create_index: int = 0
    modify_index: int = 0


class AuthMethodStub(Wire, frozen=True):
    """An auth method in a list, as those see it who have not logged in yet."""

    name: str = ""
    type: str = ""
    default: bool = False
    hash: bytes = b""
    create_index: int = 0
    modify_index: int = 0


class BindingRule(Wire, frozen=True):
    """Who logs in with `auth_method` and fits `selector` gets a role, a policy, or everything (management)."""

    id: str = ""
    description: str = ""
    auth_method: str = ""
    selector: str = ""
    bind_type: str = ""
    bind_name: str = ""
    hash: bytes = b""
    create_time: str = ZERO_TIME
    modify_time: str = ZERO_TIME
    create_index: int = 0
    modify_index: int = 0


class BindingRuleStub(Wire, frozen=True):
    """A binding rule in a list."""

    id: str = ""
    description: str = ""
    auth_method: str = ""
    hash: bytes = b""
    create_index: int = 0
    modify_index: int = 0


class AclBootstrap(Wire, frozen=True):
    """The first management token was made; its revision is the reset index."""

    accessor_id: str = ""
    create_index: int = 0
    modify_index: int = 0


class RootKey(Wire, frozen=True):
    """A key of the keyring. wrapped: its secrets, encrypted with the key-encryption key `wrapped_by`.

    state: active, inactive, prepublished, rekeying. times: Unix nanoseconds. public: the public half of the signing
    key, PEM.
    """

    key_id: str = ""
    algorithm: str = "aes256-gcm"
    state: str = "active"
    create_time: int = 0
    publish_time: int = 0
    wrapped_by: str = ""
    wrapped: bytes = b""
    public: str = ""
    create_index: int = 0
    modify_index: int = 0


class RootKeyMeta(Wire, frozen=True):
    """A key of the keyring as it is shown."""

    key_id: str = ""
    algorithm: str = "aes256-gcm"
    create_time: int = 0
    create_index: int = 0
    modify_index: int = 0
    state: str = "active"
    publish_time: int = 0


class VariableLock(OmitEmpty, frozen=True):
    """Who holds a variable. ttl and lock_delay: nanoseconds here, texts in the API."""

    id: str = ""
    ttl: int = 0
    lock_delay: int = 0


class Variable(Wire, frozen=True):
    """A variable as it is stored: `data` is its items, encrypted with the root key `key_id`.

    locked_until: nobody may lock it before (Unix nanoseconds), because a lock on it ran out.
    """

    namespace: str = ""
    path: str = ""
    lock: VariableLock | None = None
    locked_until: int = 0
    key_id: str = ""
    data: bytes = b""
    create_time: int = 0
    modify_time: int = 0
    create_index: int = 0
    modify_index: int = 0


class VariableLease(Wire, frozen=True):
    """When the lock of a variable was renewed last (Unix nanoseconds). It stands apart so that a renewal does not
    change the variable."""

    namespace: str = ""
    path: str = ""
    lock_id: str = ""
    renewed_at: int = 0
    create_index: int = 0
    modify_index: int = 0


def digest(secret: str) -> str:
    """What a secret is looked up by, so that the time a lookup takes tells nothing of it."""
    return hashlib.sha256(secret.encode()).hexdigest()


def content_hash(value: Wire) -> bytes:
    """A hash that changes with the content. value: without its hash, indexes and secrets."""
    return hashlib.blake2b(to_msgpack(value), digest_size=32).digest()


REDACTED: Final = "redacted"
"""Stands for a secret where an object is shown; given back, it means that the secret stays."""


def without_secrets(method: AuthMethod) -> AuthMethod:
    """An auth method as it is shown."""
    config = method.config
    if config.oidc_client_secret:
        config = replace(config, oidc_client_secret=REDACTED)
    if config.oidc_client_assertion:
        assertion = {
            key: REDACTED if key == "PrivateKey" and value else value
            for key, value in config.oidc_client_assertion.items()
        }
        config = replace(config, oidc_client_assertion=assertion)
    return replace(method, config=config)
