"""`lepa`: the table of commands, and what happens around each of them.

A command's module is imported when the command is called, so that `lepa version` and every help text answer at once.
"""

import os
import sys
from collections.abc import Sequence

import click

from lepa.cli.flags import Branch, Group, Row, Tree
from lepa.model.errors import LepaError

INTERRUPTED = 130
NOBODY_READS = 1

JOB: Tree = {
    "action": Row("lepa.cli.job_action:action", "Run an action that a job's author wrote down"),
    "allocs": Row("lepa.cli.job:allocs", "List a job's allocations"),
    "deployments": Row("lepa.cli.job:deployments", "List a job's deployments"),
    "dispatch": Row("lepa.cli.job_change:dispatch", "Start an instance of a parameterized job"),
    "eval": Row("lepa.cli.job_change:evaluate", "Look at a job again, and place what is missing"),
    "explain": Row("lepa.cli.explain:explain", "Say why each node was or was not chosen"),
    "history": Row("lepa.cli.job:history", "Show the versions of a job"),
    "init": Row("lepa.cli.job_init:init", "Write an example job file"),
    "inspect": Row("lepa.cli.job:inspect", "Print a job as the servers hold it"),
    "periodic": Branch(
        "Work with periodic jobs",
        {"force": Row("lepa.cli.job_change:force", "Start a periodic job now")},
    ),
    "plan": Row("lepa.cli.job_submit:plan", "Show what running a job file would change"),
    "promote": Row("lepa.cli.job_change:promote", "Promote the canaries of a job's latest deployment"),
    "restart": Row("lepa.cli.job_restart:restart", "Restart or move a job's allocations, batch by batch"),
    "revert": Row("lepa.cli.job_change:revert", "Return to an earlier version of a job"),
    "run": Row("lepa.cli.job_submit:run", "Run a job file, or change the job to what it says"),
    "scale": Row("lepa.cli.job_change:scale", "Set the count of a group"),
    "scaling-events": Row("lepa.cli.scaling:events", "List changes of the counts of a job's groups"),
    "start": Row("lepa.cli.job_change:start", "Start a stopped job again"),
    "status": Row("lepa.cli.job:status", "List jobs, or show one"),
    "stop": Row("lepa.cli.job_change:stop", "Stop jobs"),
    "tag": Branch(
        "Name versions of a job",
        {
            "apply": Row("lepa.cli.job_tag:apply", "Name a version"),
            "unset": Row("lepa.cli.job_tag:unset", "Take the name of a version away"),
        },
    ),
    "validate": Row("lepa.cli.job_submit:validate", "Check a job file"),
}
ALLOC: Tree = {
    "checks": Row("lepa.cli.alloc:checks", "Show the health checks of an allocation"),
    "exec": Row("lepa.cli.alloc_exec:run", "Run a command inside a task"),
    "fs": Row("lepa.cli.alloc_files:files", "List and read the files of an allocation"),
    "logs": Row("lepa.cli.alloc_files:logs", "Print what a task writes"),
    "pause": Row("lepa.cli.enterprise:alloc_pause", "Pause a task (Enterprise)", hidden=True),
    "restart": Row("lepa.cli.alloc:restart", "Restart the tasks of an allocation in place"),
    "signal": Row("lepa.cli.alloc:signal", "Send a signal to the tasks of an allocation"),
    "status": Row("lepa.cli.alloc:status", "Show an allocation"),
    "stop": Row("lepa.cli.alloc:stop", "Stop an allocation and let its job replace it"),
}
NODE: Tree = {
    "config": Row("lepa.cli.operator:node_config", "Look at the servers that a client knows"),
    "drain": Row("lepa.cli.node:drain", "Move the allocations of a node elsewhere"),
    "eligibility": Row("lepa.cli.node:eligibility", "Say whether a node may get new allocations"),
    "meta": Branch(
        "Read and change the metadata of a node",
        {
            "apply": Row("lepa.cli.node:meta_apply", "Change metadata"),
            "read": Row("lepa.cli.node:meta_read", "Print metadata"),
        },
    ),
    "pool": Branch(
        "Work with node pools",
        {
            "apply": Row("lepa.cli.tenancy:pool_apply", "Create or change a node pool from a file"),
            "delete": Row("lepa.cli.tenancy:pool_delete", "Delete a node pool"),
            "init": Row("lepa.cli.tenancy:pool_init", "Write an example of a node pool"),
            "info": Row("lepa.cli.tenancy:pool_info", "Show a node pool"),
            "jobs": Row("lepa.cli.tenancy:pool_jobs", "List the jobs of a node pool"),
            "list": Row("lepa.cli.tenancy:pool_list", "List node pools"),
            "nodes": Row("lepa.cli.tenancy:pool_nodes", "List the nodes of a node pool"),
        },
    ),
    "status": Row("lepa.cli.node:status", "List nodes, or show one"),
}
EVALUATION: Tree = {
    "delete": Row("lepa.cli.evaluation:delete", "Delete evaluations"),
    "list": Row("lepa.cli.evaluation:list_all", "List evaluations"),
    "status": Row("lepa.cli.evaluation:status", "Show an evaluation"),
}
DEPLOYMENT: Tree = {
    "fail": Row("lepa.cli.deployment:fail", "End a deployment as failed"),
    "list": Row("lepa.cli.deployment:list_all", "List deployments"),
    "pause": Row("lepa.cli.deployment:pause", "Pause a deployment"),
    "promote": Row("lepa.cli.deployment:promote", "Promote the canaries of a deployment"),
    "resume": Row("lepa.cli.deployment:resume", "Let a paused deployment go on"),
    "status": Row("lepa.cli.deployment:status", "Show a deployment"),
    "unblock": Row("lepa.cli.deployment:unblock", "Let a deployment go on that waits for other regions"),
}
NAMESPACE: Tree = {
    "apply": Row("lepa.cli.tenancy:namespace_apply", "Create or change a namespace"),
    "delete": Row("lepa.cli.tenancy:namespace_delete", "Delete a namespace"),
    "inspect": Row("lepa.cli.tenancy:namespace_inspect", "Print a namespace as the servers hold it"),
    "list": Row("lepa.cli.tenancy:namespace_list", "List namespaces"),
    "status": Row("lepa.cli.tenancy:namespace_status", "Show a namespace"),
}
OPERATOR: Tree = {
    "autopilot": Branch(
        "Look at how the servers do",
        {
            "get-config": Row("lepa.cli.cluster:autopilot_get_config", "Show how servers look after each other"),
            "health": Row("lepa.cli.cluster:autopilot_health", "Show how the servers do"),
            "set-config": Row("lepa.cli.cluster:autopilot_set_config", "Change how servers look after each other"),
        },
    ),
    "api": Row("lepa.cli.cluster:call", "Make any request of the HTTP API"),
    "gossip": Branch(
        "Look at and change how servers gossip",
        {
            "keyring": Branch(
                "Work with the keys that seal gossip",
                {
                    "generate": Row("lepa.cli.gossip:generate", "Print a new key"),
                    "install": Row("lepa.cli.gossip:install", "Let every server read what a key seals"),
                    "list": Row("lepa.cli.gossip:list_keys", "List the keys that servers have"),
                    "remove": Row("lepa.cli.gossip:remove", "Take a key away from every server"),
                    "use": Row("lepa.cli.gossip:use", "Let every server seal with an installed key"),
                },
            )
        },
    ),
    "debug": Row("lepa.cli.debug:debug", "Collect what helps to find a fault"),
    "metrics": Row("lepa.cli.operator:metrics", "Print the figures of an agent"),
    "utilization": Row("lepa.cli.enterprise:utilization", "Print a utilization report (Enterprise)", hidden=True),
    "raft": Branch(
        "Look at the servers' consensus",
        {
            "list-peers": Row("lepa.cli.cluster:list_peers", "List the servers that keep the state"),
            "remove-peer": Row("lepa.cli.cluster:remove_peer", "Take a server out for good"),
            "transfer-leadership": Row("lepa.cli.cluster:transfer_leadership", "Let a certain server lead"),
        },
    ),
    "root": Branch(
        "Look at and change what encrypts variables",
        {
            "keyring": Branch(
                "Work with the keys that encrypt variables and sign identities",
                {
                    "list": Row("lepa.cli.keyring:list_keys", "List the keys"),
                    "remove": Row("lepa.cli.keyring:remove", "Remove a key that is not in use"),
                    "rotate": Row("lepa.cli.keyring:rotate", "Make a new key"),
                },
            )
        },
    ),
    "scheduler": Branch(
        "Look at and change how placements are made",
        {
            "get-config": Row("lepa.cli.cluster:get_config", "Print the scheduler's configuration"),
            "set-config": Row("lepa.cli.cluster:set_config", "Change the scheduler's configuration"),
        },
    ),
    "snapshot": Branch(
        "Save the whole state, and put it back",
        {
            "inspect": Row("lepa.cli.snapshot:inspect", "Show what a saved state is"),
            "redact": Row("lepa.cli.snapshot:redact", "Take the secrets out of a saved state"),
            "replay": Row("lepa.cli.snapshot_replay:replay", "Schedule an evaluation once more on a saved state"),
            "restore": Row("lepa.cli.snapshot:restore", "Put a saved state in the place of everything"),
            "save": Row("lepa.cli.snapshot:save", "Save the whole state of this moment"),
            "state": Row("lepa.cli.snapshot:state", "Print everything in a saved state as JSON"),
        },
    ),
}
ACL: Tree = {
    "auth-method": Branch(
        "Work with auth methods: who vouches for people",
        {
            "create": Row("lepa.cli.login:auth_method_create", "Make an auth method"),
            "delete": Row("lepa.cli.login:auth_method_delete", "Delete an auth method"),
            "info": Row("lepa.cli.login:auth_method_info", "Show an auth method"),
            "list": Row("lepa.cli.login:auth_method_list", "List auth methods"),
            "update": Row("lepa.cli.login:auth_method_update", "Change an auth method"),
        },
    ),
    "binding-rule": Branch(
        "Work with binding rules: what logins get",
        {
            "create": Row("lepa.cli.login:binding_rule_create", "Make a binding rule"),
            "delete": Row("lepa.cli.login:binding_rule_delete", "Delete a binding rule"),
            "info": Row("lepa.cli.login:binding_rule_info", "Show a binding rule"),
            "list": Row("lepa.cli.login:binding_rule_list", "List binding rules"),
            "update": Row("lepa.cli.login:binding_rule_update", "Change a binding rule"),
        },
    ),
    "bootstrap": Row("lepa.cli.acl:bootstrap", "Make the first token"),
    "policy": Branch(
        "Work with policies: what may be done",
        {
            "apply": Row("lepa.cli.acl:policy_apply", "Create or change a policy"),
            "delete": Row("lepa.cli.acl:policy_delete", "Delete a policy"),
            "info": Row("lepa.cli.acl:policy_info", "Show a policy"),
            "list": Row("lepa.cli.acl:policy_list", "List policies"),
            "self": Row("lepa.cli.acl:policy_self", "List the policies of the token in use"),
        },
    ),
    "role": Branch(
        "Work with roles: policies under one name",
        {
            "create": Row("lepa.cli.acl:role_create", "Make a role"),
            "delete": Row("lepa.cli.acl:role_delete", "Delete a role"),
            "info": Row("lepa.cli.acl:role_info", "Show a role"),
            "list": Row("lepa.cli.acl:role_list", "List roles"),
            "update": Row("lepa.cli.acl:role_update", "Change a role"),
        },
    ),
    "token": Branch(
        "Work with tokens",
        {
            "create": Row("lepa.cli.acl:token_create", "Make a token"),
            "delete": Row("lepa.cli.acl:token_delete", "Delete a token"),
            "info": Row("lepa.cli.acl:token_info", "Show a token"),
            "list": Row("lepa.cli.acl:token_list", "List tokens"),
            "self": Row("lepa.cli.acl:token_self", "Show the token in use"),
            "update": Row("lepa.cli.acl:token_update", "Change a token"),
        },
    ),
}
VAR: Tree = {
    "get": Row("lepa.cli.variables:get", "Show a variable"),
    "init": Row("lepa.cli.variables:init", "Write an example of a variable"),
    "list": Row("lepa.cli.variables:list_variables", "List variables"),
    "lock": Row("lepa.cli.variable_lock:lock", "Run a command while a variable is locked"),
    "purge": Row("lepa.cli.variables:purge", "Delete a variable for good"),
    "put": Row("lepa.cli.variables:put", "Write a variable"),
}
QUOTA: Tree = {
    "apply": Row("lepa.cli.enterprise:quota_apply", "Create or change a quota"),
    "delete": Row("lepa.cli.enterprise:quota_delete", "Delete a quota"),
    "init": Row("lepa.cli.enterprise:quota_init", "Write an example of a quota"),
    "inspect": Row("lepa.cli.enterprise:quota_inspect", "Print a quota"),
    "list": Row("lepa.cli.enterprise:quota_list", "List quotas"),
    "status": Row("lepa.cli.enterprise:quota_status", "Show a quota and its use"),
}
RECOMMENDATION: Tree = {
    "apply": Row("lepa.cli.enterprise:recommendation_apply", "Apply a recommendation"),
    "dismiss": Row("lepa.cli.enterprise:recommendation_dismiss", "Dismiss a recommendation"),
    "info": Row("lepa.cli.enterprise:recommendation_info", "Show a recommendation"),
    "list": Row("lepa.cli.enterprise:recommendation_list", "List recommendations"),
}
SENTINEL: Tree = {
    "apply": Row("lepa.cli.enterprise:sentinel_apply", "Create or change a policy"),
    "delete": Row("lepa.cli.enterprise:sentinel_delete", "Delete a policy"),
    "list": Row("lepa.cli.enterprise:sentinel_list", "List policies"),
    "read": Row("lepa.cli.enterprise:sentinel_read", "Print a policy"),
}
SERVER: Tree = {
    "force-leave": Row("lepa.cli.gossip:force_leave", "Declare a failed server gone for good"),
    "join": Row("lepa.cli.gossip:join", "Join other servers"),
    "members": Row("lepa.cli.cluster:members", "List the servers that know each other"),
}
SERVICE: Tree = {
    "config": Row("lepa.cli.service_config:config", "Print configuration for HAProxy or nginx"),
    "delete": Row("lepa.cli.service:delete", "Take one instance of a service away"),
    "info": Row("lepa.cli.service:info", "Show the instances of a service"),
    "list": Row("lepa.cli.service:list_all", "List services"),
}
APP: Tree = {
    "delete": Row("lepa.cli.app:app_delete", "Take an application away"),
    "link": Row("lepa.cli.app:app_link", "Let a model answer an application"),
    "list": Row("lepa.cli.app:app_list", "List applications"),
    "policy": Row("lepa.cli.app:app_policy", "Say how the models of an application answer it"),
    "register": Row("lepa.cli.app:app_register", "Make an application answer predictions"),
    "unlink": Row("lepa.cli.app:app_unlink", "Let a model no longer answer an application"),
}
MODEL: Tree = {
    "autoscale": Row("lepa.cli.model:model_autoscale", "Let a model's replicas follow its load"),
    "deploy": Row("lepa.cli.model:model_deploy", "Deploy a fitted model or a function"),
    "list": Row("lepa.cli.model:model_list", "List models"),
    "batching": Row("lepa.cli.model:model_batching", "Say how batches are made"),
    "rollback": Row("lepa.cli.model:model_rollback", "Go back to the version before"),
    "scale": Row("lepa.cli.model:model_scale", "Set the number of a model's replicas"),
    "stop": Row("lepa.cli.model:model_stop", "Stop a model's replicas and forget it"),
    "top": Row("lepa.cli.model:model_top", "Show what applications and models do now"),
}
VOLUME: Tree = {
    "claim": Branch(
        "Look at the volumes that instances of groups keep",
        {
            "delete": Row("lepa.cli.volume:claim_delete", "Let the next instance have any volume of the name"),
            "list": Row("lepa.cli.volume:claim_list", "List the volumes that instances of groups keep"),
        },
    ),
    "create": Row("lepa.cli.volume:create", "Make a volume and register it"),
    "delete": Row("lepa.cli.volume:delete", "Remove a volume with what is stored in it"),
    "deregister": Row("lepa.cli.volume:deregister", "Forget a CSI volume; what is stored stays"),
    "detach": Row("lepa.cli.volume:detach", "Take a CSI volume off a node"),
    "init": Row("lepa.cli.volume:init", "Write an example volume specification"),
    "register": Row("lepa.cli.volume:register", "Register a volume that is there already"),
    "snapshot": Branch(
        "Work with snapshots of CSI volumes",
        {
            "create": Row("lepa.cli.volume:snapshot_create", "Make a snapshot"),
            "delete": Row("lepa.cli.volume:snapshot_delete", "Remove a snapshot"),
            "list": Row("lepa.cli.volume:snapshot_list", "List the snapshots that a plugin knows"),
        },
    ),
    "status": Row("lepa.cli.volume:status", "List volumes, or show one"),
}
COMMANDS: Tree = {
    "acl": Branch("Say who may do what", ACL),
    "action": Row("lepa.cli.job_action:action", "Run an action that a job's author wrote down"),
    "agent": Row("lepa.cli.agent:agent", "Run an agent: server, client or both"),
    "agent-info": Row("lepa.cli.cluster:agent_info", "Print figures of the asked agent"),
    "alloc": Branch("Work with allocations", ALLOC),
    "app": Branch("Work with applications of model serving", APP),
    "completion": Row("lepa.cli.completion:completion", "Print a shell's completion script"),
    "config": Branch(
        "Check configurations", {"validate": Row("lepa.cli.operator:config_validate", "Check an agent's configuration")}
    ),
    "deployment": Branch("Work with deployments", DEPLOYMENT),
    "eval": Branch("Work with evaluations", EVALUATION),
    "exec": Row("lepa.cli.alloc_exec:run", "Run a command inside a task"),
    "fmt": Row("lepa.cli.job_file:fmt", "Bring job files into canonical form"),
    "fs": Row("lepa.cli.alloc_files:files", "List and read the files of an allocation"),
    "ingress": Branch(
        "Look at the ingress", {"routes": Row("lepa.cli.ingress:routes", "Show where requests from outside go")}
    ),
    "init": Row("lepa.cli.job_init:init", "Write an example job file"),
    "inspect": Row("lepa.cli.job:inspect", "Print a job as the servers hold it"),
    "job": Branch("Work with jobs", JOB),
    "license": Branch(
        "Look at the licence", {"get": Row("lepa.cli.enterprise:license_get", "Print the licence")}, hidden=True
    ),
    "login": Row("lepa.cli.login:login", "Get a token by an auth method"),
    "logs": Row("lepa.cli.alloc_files:logs", "Print what a task writes"),
    "model": Branch("Work with served models", MODEL),
    "monitor": Branch(
        "Read the log of an agent",
        {
            "export": Row("lepa.cli.agent_log:export", "Print the log file of an agent"),
            "follow": Row("lepa.cli.agent_log:follow", "Follow the log of an agent; meant when nothing is named"),
        },
        default="follow",
    ),
    "namespace": Branch("Work with namespaces", NAMESPACE),
    "node": Branch("Work with nodes", NODE),
    "operator": Branch("Commands for operators of a cluster", OPERATOR),
    "overlay": Branch(
        "Look at overlay networks",
        {"status": Row("lepa.cli.overlay:status", "Show which node holds which share of an overlay")},
    ),
    "plan": Row("lepa.cli.job_submit:plan", "Show what running a job file would change"),
    "plugin": Branch(
        "Look at storage plugins", {"status": Row("lepa.cli.operator:plugin_status", "List plugins, or show one")}
    ),
    "predict": Row("lepa.cli.predict:predict", "Ask an application for a prediction"),
    "quota": Branch("Work with quotas (Enterprise)", QUOTA, hidden=True),
    "recommendation": Branch("Work with recommendations (Enterprise)", RECOMMENDATION, hidden=True),
    "run": Row("lepa.cli.job_submit:run", "Run a job file, or change the job to what it says"),
    "scaling": Branch(
        "Look at how counts may change",
        {
            "policy": Branch(
                "Look at scaling policies",
                {
                    "info": Row("lepa.cli.scaling:policy_info", "Show a scaling policy"),
                    "list": Row("lepa.cli.scaling:policy_list", "List scaling policies"),
                },
            )
        },
    ),
    "sentinel": Branch("Work with Sentinel policies (Enterprise)", SENTINEL, hidden=True),
    "server": Branch("Work with servers", SERVER),
    "service": Branch("Work with services", SERVICE),
    "setup": Branch(
        "Set up other programs that Nomad needs",
        {
            "consul": Row("lepa.cli.operator:setup_consul", "Say what Consul needs"),
            "vault": Row("lepa.cli.operator:setup_vault", "Say what Vault needs"),
        },
        hidden=True,
    ),
    "start": Row("lepa.cli.job_change:start", "Start a stopped job again"),
    "status": Row("lepa.cli.cluster:status", "Show whatever an id names"),
    "stop": Row("lepa.cli.job_change:stop", "Stop jobs"),
    "system": Branch(
        "Commands for the whole cluster",
        {
            "gc": Row("lepa.cli.cluster:collect", "Forget what has ended"),
            "reconcile": Branch(
                "Set derived data right",
                {"summaries": Row("lepa.cli.cluster:summaries", "Count the allocations of all jobs again")},
            ),
        },
    ),
    "tls": Branch(
        "Make and read certificates for TLS",
        {
            "ca": Branch(
                "Work with an authority of one's own",
                {
                    "create": Row("lepa.cli.tls:ca_create", "Make an authority"),
                    "info": Row("lepa.cli.tls:info", "Show what an authority's certificate says"),
                },
            ),
            "cert": Branch(
                "Work with certificates of agents and of people",
                {
                    "create": Row("lepa.cli.tls:cert_create", "Make a certificate"),
                    "info": Row("lepa.cli.tls:info", "Show what a certificate says"),
                },
            ),
        },
    ),
    "top": Row("lepa.cli.top:top", "Show nodes, jobs and allocations live"),
    "ui": Row("lepa.cli.pages:ui", "Open the pages of the cluster in a browser"),
    "validate": Row("lepa.cli.job_submit:validate", "Check a job file"),
    "var": Branch("Work with variables: configuration and secrets by path", VAR),
    "volume": Branch("Work with volumes", VOLUME),
    "version": Row("lepa.cli.version:version", "Print the version"),
    # Names of old
    "alloc-status": Row("lepa.cli.alloc:status", "Show an allocation", hidden=True),
    "eval-status": Row("lepa.cli.evaluation:status", "Show an evaluation", hidden=True),
    "node-drain": Row("lepa.cli.node:drain", "Move the allocations of a node elsewhere", hidden=True),
    "node-status": Row("lepa.cli.node:status", "List nodes, or show one", hidden=True),
    "server-members": Row("lepa.cli.cluster:members", "List the servers that know each other", hidden=True),
}

SUMMARY = "Run jobs, find them by name and serve models. An agent is started with `lepa agent -dev`."


def root() -> Group:
    """The whole command line."""
    return Group("lepa", SUMMARY, COMMANDS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code. An error is a sentence on standard error, never a traceback."""
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        code = root().main(words, prog_name="lepa", standalone_mode=False)
        sys.stdout.flush()
    except click.UsageError as error:
        return _misused(error)
    except click.ClickException as error:
        return _failed(error.format_message())
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except LepaError as error:
        return _failed(error.message)
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 1
    except BrokenPipeError:
        return _nobody_reads()
    except Exception as error:
        if os.environ.get("LEPA_DEBUG"):
            raise
        name = type(error).__name__
        return _failed(f"internal error ({name}: {error}); this is a bug; LEPA_DEBUG=1 shows where it happened")
    return code if isinstance(code, int) else 0


def _misused(error: click.UsageError) -> int:
    command = error.ctx.command_path if error.ctx else "lepa"
    click.echo(f"{error.format_message()}\nFor additional help try '{command} -help'", err=True)
    return getattr(error.ctx.command, "error_code", 1) if error.ctx else 1


def _failed(message: str) -> int:
    click.echo(f"Error: {message}", err=True)
    return 1


def _nobody_reads() -> int:
    """Whoever read the output has gone; what is still buffered goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return NOBODY_READS
