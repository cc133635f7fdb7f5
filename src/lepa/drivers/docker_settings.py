"""Settings of the docker driver: the agent's `plugin "docker"` block. Durations are text such as "5m"."""

import ssl

import msgspec

from lepa.drivers.docker_rules import DEFAULT_CAPABILITIES, AllowedModes, LoggingSettings, Rules, VolumesSettings


class AuthSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """config: path of a Docker config.json with credentials of registries. helper: the NAME of a program
    docker-credential-NAME on the PATH that is asked for them first.
    """

    config: str = ""
    helper: str = ""


class TlsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Certificate files for a daemon behind TLS."""

    cert: str = ""
    key: str = ""
    ca: str = ""


class DanglingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Containers of this node that belong to no task any more.

    period: between two looks. creation_grace: how old one must be. dry_run: only tell of them.
    """

    enabled: bool = True
    dry_run: bool = False
    period: str = "5m"
    creation_grace: str = "5m"


class GcSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is removed when no task needs it any more.

    image: images that were fetched for tasks, `image_delay` after the last of them. container: ended containers.
    """

    image: bool = True
    image_delay: str = "3m"
    container: bool = True
    dangling_containers: DanglingSettings = DanglingSettings()


class DockerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of it. infra_image: of the container that holds a group's network; "" makes an empty one that needs no
    registry. allowed_modes: what pid_mode, ipc_mode, userns_mode and uts_mode of jobs may be, see the reference.
    """

    endpoint: str = "unix:///var/run/docker.sock"
    auth: AuthSettings = AuthSettings()
    tls: TlsSettings = TlsSettings()
    extra_labels: tuple[str, ...] = ()
    logging: LoggingSettings = LoggingSettings()
    gc: GcSettings = GcSettings()
    volumes: VolumesSettings = VolumesSettings()
    allow_privileged: bool = False
    allow_caps: tuple[str, ...] = DEFAULT_CAPABILITIES
    allow_runtimes: tuple[str, ...] = ("runc", "nvidia")
    nvidia_runtime: str = "nvidia"
    allowed_modes: AllowedModes = AllowedModes()
    infra_image: str = ""
    infra_image_pull_timeout: str = "5m"
    image_pull_timeout: str = "5m"
    pull_activity_timeout: str = "2m"
    container_exists_attempts: int = 5
    pids_limit: int = 0
    oom_score_adj: int = 0
    disable_log_collection: bool = False
    windows_allow_insecure_container_admin: bool = False


def rules(settings: DockerSettings, core_mhz: float) -> Rules:
    """The part that decides what a container is made of."""
    return Rules(
        allow_privileged=settings.allow_privileged,
        allow_caps=settings.allow_caps,
        allow_runtimes=settings.allow_runtimes,
        allowed_modes=settings.allowed_modes,
        extra_labels=settings.extra_labels,
        logging=settings.logging,
        volumes=settings.volumes,
        pids_limit=settings.pids_limit,
        oom_score_adj=settings.oom_score_adj,
        core_mhz=core_mhz,
    )


def tls_context(settings: TlsSettings) -> ssl.SSLContext | None:
    """What the connection to the daemon is secured with; None without TLS."""
    if not settings.ca and not settings.cert:
        return None
    context = ssl.create_default_context(cafile=settings.ca or None)
    if settings.cert:
        context.load_cert_chain(settings.cert, settings.key or None)
    return context
