"""Nomad's HTTP API, route by route: status, headers, the keys of every answer, and the texts of errors.

Each row of the tables below is a requirement with an id that documents can cite. The rows run in their order against
one agent; those that change something come last.
"""

import json
import threading
import time
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from tests.conformance.nomad_keys import misfits
from tests.e2e.agents import HOST, Agent, Answer, eventually, running
from tests.e2e.jobs import SECOND, quick_update, shell_job

from lepa.api import app, enterprise, jobs, kv, serving

Place = Mapping[str, str]


class Row(NamedTuple):
    """One request and what has to come back.

    path: below /v1/, with names of the world in braces. kind: a type of nomad_keys, or "text", "true", "string",
    "strings", "null", "empty", "raw". fresh: the answer has the three headers of a read. some: a list must not be
    empty.
    """

    id: str
    verb: str
    path: str
    kind: str
    body: Any = None
    status: int = 200
    text: str = ""
    fresh: bool = False
    some: bool = True


def read(id: str, path: str, kind: str, **more: Any) -> Row:
    return Row(id, "GET", path, kind, fresh=True, **more)


READS = (
    read("API-JOB-001", "jobs", "[]JobListStub"),
    read("API-JOB-002", "jobs?meta=true", "[]JobListStub"),
    read("API-JOB-003", "jobs/statuses", "[]JobStatusesJob"),
    Row("API-JOB-004", "PUT", "jobs/statuses", "[]JobStatusesJob", {"Jobs": [{"ID": "web", "Namespace": "default"}]}),
    read("API-JOB-005", "job/web", "Job"),
    read("API-JOB-006", "job/{child}", "Job"),
    read("API-JOB-007", "job/web/versions", "JobVersions"),
    read("API-JOB-008", "job/web/versions?diffs=true", "JobVersions"),
    read("API-JOB-009", "job/web/submission?version=0", "JobSubmission"),
    read("API-JOB-010", "job/web/allocations", "[]AllocListStub"),
    read("API-JOB-011", "job/web/allocations?all=true", "[]AllocListStub"),
    read("API-JOB-012", "job/web/evaluations", "[]Evaluation"),
    read("API-JOB-013", "job/web/deployments", "[]Deployment"),
    read("API-JOB-014", "job/web/deployment", "Deployment"),
    read("API-JOB-015", "job/letters/deployment", "null"),
    read("API-JOB-016", "job/web/summary", "JobSummary"),
    read("API-JOB-017", "job/letters/summary", "JobSummary"),
    read("API-JOB-018", "job/web/services", "[]ServiceRegistration"),
    Row("API-JOB-019", "GET", "job/web/actions", "[]JobAction"),
    read("API-JOB-020", "job/web/scale", "JobScaleStatus"),
    Row("API-JOB-021", "PUT", "jobs/parse", "Job", {"JobHCL": 'job "a" {}', "Canonicalize": True}),
    Row("API-JOB-022", "PUT", "jobs/parse", "Job", {"JobHCL": 'job "a" {}'}),
    Row("API-JOB-023", "PUT", "validate/job", "JobValidateResponse", {"Job": {"ID": "a"}}),
    Row("API-JOB-024", "PUT", "job/new/plan", "JobPlanResponse", {"Job": shell_job("new"), "Diff": True}),
    Row("API-JOB-025", "PUT", "job/web/plan", "JobPlanResponse", {"Job": shell_job("web", count=2), "Diff": True}),
    read("API-ALL-001", "allocations", "[]AllocListStub"),
    read("API-ALL-002", "allocations?resources=true&task_states=false", "[]AllocListStub"),
    read("API-ALL-003", "allocation/{alloc}", "Allocation"),
    read("API-ALL-004", "allocation/{alloc}/services", "[]ServiceRegistration"),
    Row("API-ALL-005", "GET", "allocation/{alloc}/checks", "{}CheckQueryResult"),
    Row("API-ALL-006", "GET", "client/allocation/{alloc}/checks", "{}CheckQueryResult"),
    Row("API-ALL-007", "GET", "client/allocation/{alloc}/stats", "AllocResourceUsage"),
    Row("API-ALL-008", "GET", "client/allocation/{alloc}/stats?task=main", "AllocResourceUsage"),
    Row("API-FS-001", "GET", "client/fs/ls/{alloc}", "[]AllocFileInfo"),
    Row("API-FS-002", "GET", "client/fs/ls/{alloc}?path=/alloc", "[]AllocFileInfo"),
    Row("API-FS-003", "GET", "client/fs/stat/{alloc}?path=alloc/logs/main.stdout.0", "AllocFileInfo"),
    Row("API-FS-004", "GET", "client/fs/cat/{alloc}?path=alloc/logs/main.stdout.0", "raw"),
    Row("API-FS-005", "GET", "client/fs/readat/{alloc}?path=alloc/logs/main.stdout.0&offset=0&limit=3", "raw"),
    Row("API-FS-006", "GET", "client/fs/stream/{alloc}?path=alloc/logs/main.stdout.0&follow=false", "frames"),
    Row("API-FS-007", "GET", "client/fs/logs/{alloc}?task=main&type=stdout", "frames"),
    Row("API-FS-008", "GET", "client/fs/logs/{alloc}?task=main&type=stdout&plain=true", "raw"),
    read("API-EVA-001", "evaluations", "[]Evaluation"),
    read("API-EVA-002", "evaluations?status=blocked", "[]Evaluation"),
    read("API-EVA-003", "evaluations?job=web", "[]Evaluation"),
    read("API-EVA-004", "evaluations/count", "EvaluationCount"),
    read("API-EVA-005", "evaluation/{blocked}", "Evaluation"),
    read("API-EVA-006", "evaluation/{eval}?related=true", "Evaluation"),
    read("API-EVA-007", "evaluation/{eval}/allocations", "[]AllocListStub", some=False),
    read("API-DEP-001", "deployments", "[]Deployment"),
    read("API-DEP-002", "deployment/{deployment}", "Deployment"),
    read("API-DEP-003", "deployment/allocations/{deployment}", "[]AllocListStub"),
    read("API-NOD-001", "nodes", "[]NodeListStub"),
    read("API-NOD-002", "nodes?resources=true&os=true", "[]NodeListStub"),
    read("API-NOD-003", "node/{node}", "Node"),
    read("API-NOD-004", "node/{node}/allocations", "[]Allocation"),
    Row("API-NOD-005", "GET", "client/stats", "HostStats"),
    Row("API-NOD-006", "GET", "client/stats?node_id={node}", "HostStats"),
    Row("API-NOD-007", "GET", "client/metadata", "ClientMetadata"),
    read("API-POO-001", "node/pools", "[]NodePool"),
    read("API-POO-002", "node/pool/default", "NodePool"),
    read("API-POO-003", "node/pool/default/nodes", "[]NodeListStub"),
    read("API-POO-004", "node/pool/default/jobs", "[]JobListStub"),
    read("API-POO-005", "node/pool/gpu/jobs", "[]JobListStub", some=False),
    read("API-NS-001", "namespaces", "[]Namespace"),
    read("API-NS-002", "namespace/other", "Namespace"),
    read("API-SRV-001", "services", "[]NamespaceServices"),
    read("API-SRV-002", "service/page", "[]ServiceRegistration"),
    read("API-SRV-003", "service/page?choose=1|key", "[]ServiceRegistration"),
    read("API-SRV-004", "service/nobody", "[]ServiceRegistration", some=False),
    read("API-SCA-001", "scaling/policies", "[]ScalingPolicyListStub"),
    read("API-SCA-002", "scaling/policies?job=web&type=horizontal", "[]ScalingPolicyListStub"),
    read("API-SCA-003", "scaling/policy/{policy}", "ScalingPolicy"),
    Row("API-SEA-001", "PUT", "search", "SearchResponse", {"Prefix": "w", "Context": "jobs"}, fresh=True),
    Row("API-SEA-002", "PUT", "search/fuzzy", "SearchResponse", {"Text": "we", "Context": "all"}, fresh=True),
    Row("API-AGE-001", "GET", "agent/self", "AgentSelf"),
    Row("API-AGE-002", "GET", "agent/members", "Members"),
    Row("API-AGE-003", "GET", "agent/health", "AgentHealth"),
    Row("API-AGE-004", "GET", "agent/health?type=server", "AgentHealth"),
    Row("API-AGE-005", "GET", "agent/servers", "strings"),
    Row("API-AGE-006", "PUT", "agent/join?address=192.0.2.1", "JoinResponse"),
    Row("API-AGE-007", "PUT", "agent/reload", "empty"),
    Row("API-AGE-009", "GET", "agent/host", "AgentHost"),
    Row("API-AGE-008", "PUT", "agent/force-leave?node=nobody", "empty"),
    Row("API-MET-001", "GET", "metrics", "Metrics"),
    Row("API-MET-002", "GET", "metrics?format=prometheus", "raw"),
    read("API-STA-001", "status/leader", "string"),
    read("API-STA-002", "status/peers", "strings"),
    read("API-STA-003", "regions", "strings"),
    read("API-OPE-001", "operator/scheduler/configuration", "SchedulerConfigurationResponse"),
    Row("API-OPE-002", "GET", "operator/raft/configuration", "RaftConfiguration"),
    Row("API-OPE-003", "GET", "operator/license", "empty", status=204),
    Row("API-OPE-004", "GET", "operator/upgrade-check/vault-workload-identity", "UpgradeCheck"),
    Row("API-PLU-001", "GET", "plugins", "[]CSIPluginListStub", some=False),
    Row("API-PLU-002", "GET", "plugins?type=csi", "[]CSIPluginListStub", some=False),
    Row("API-AGE-010", "GET", "agent/schedulers", "Schedulers"),
    Row("API-AGE-011", "GET", "agent/schedulers/config", "SchedulersConfig"),
    Row("API-AGE-012", "GET", "agent/pprof/goroutine", "raw"),
    Row("API-AGE-013", "GET", "agent/pprof/profile?seconds=1", "raw"),
)

ERRORS = (
    Row("API-ERR-001", "GET", "job/ghost", "text", status=404, text="job not found"),
    Row("API-ERR-002", "GET", "job/ghost/summary", "text", status=404, text="job not found"),
    Row("API-ERR-003", "GET", "job/ghost/versions", "text", status=404, text="job versions not found"),
    Row("API-ERR-004", "GET", "job/web/submission", "text", status=400,
        text="Unable to parse job submission version parameter"),
    Row("API-ERR-005", "GET", "job/web/submission?version=99", "text", status=404, text="job source not found"),
    Row("API-ERR-006", "GET", "job/ghost/services", "text", status=404, text="job not found"),
    Row("API-ERR-007", "PUT", "jobs", "text", status=400, text="Request body is empty"),
    Row("API-ERR-008", "PUT", "jobs", "text", {}, 400, "Job must be specified"),
    Row("API-ERR-009", "PUT", "jobs", "text", {"Job": {}}, 400, "Job ID hasn't been provided"),
    Row("API-ERR-010", "PUT", "job/a", "text", {"Job": {"ID": "b"}}, 400, "Job ID does not match name"),
    Row("API-ERR-011", "PUT", "job/a/plan", "text", {"Job": {"Name": "a"}}, 400, "Job must have a valid ID"),
    Row("API-ERR-012", "PUT", "job/a/plan", "text", {"Job": {"ID": "b"}}, 400, "Job ID does not match"),
    Row("API-ERR-013", "PUT", "jobs/parse", "text", {"JobHCL": ""}, 400, "Job spec is empty"),
    Row("API-ERR-014", "PUT", "jobs/statuses", "text", {"Jobs": []}, 400, "no jobs in request"),
    Row("API-ERR-015", "PUT", "job/web/revert", "text", {"JobVersion": 0}, 400, "JobID must be specified"),
    Row("API-ERR-016", "PUT", "job/letters/evaluate", "text", {"JobID": "letters"}, 400,
        "can't evaluate parameterized job"),
    Row("API-ERR-017", "PUT", "job/yearly/evaluate", "text", {"JobID": "yearly"}, 400, "can't evaluate periodic job"),
    Row("API-ERR-018", "PUT", "job/ghost/evaluate", "text", {"JobID": "ghost"}, 404, "job not found"),
    Row("API-ERR-019", "PUT", "job/web/periodic/force", "text", None, 400, "can't force launch non-periodic job"),
    Row("API-ERR-020", "PUT", "job/web/scale", "text", {"Count": 9, "Target": {"Group": "ghost"}}, 400,
        'task group "ghost" specified for scaling does not exist in job'),
    Row("API-ERR-021", "PUT", "job/web/scale", "text", {"Count": 9, "Target": {"Group": "main"}}, 400,
        "group count was greater than scaling policy maximum: 9 > 4"),
    Row("API-ERR-022", "PUT", "job/web/scale", "text", {"Count": 0, "Target": {"Group": "main"}}, 400,
        "group count was less than scaling policy minimum: 0 < 1"),
    Row("API-ERR-023", "PUT", "job/ghost/scale", "text", {"Count": 1, "Target": {"Group": "g"}}, 404,
        'job "ghost" not found'),
    Row("API-ERR-024", "PUT", "job/letters/dispatch", "text", {"Meta": {"a": "b"}}, 400,
        'Dispatch request included unpermitted metadata keys: [a]'),
    Row("API-ERR-025", "DELETE", "job/web?eval_priority=101", "text", None, 400,
        "eval priority must be between 1 and 100 inclusively"),
    Row("API-ERR-030", "GET", "allocation/5c1a8c35-0d8e-4b8e-9a7b-000000000000", "text", status=404,
        text="alloc not found"),
    Row("API-ERR-031", "GET", "client/fs/ls/5c1a8c35-0d8e-4b8e-9a7b-000000000000", "text", status=404,
        text='Unknown allocation "5c1a8c35-0d8e-4b8e-9a7b-000000000000"'),
    Row("API-ERR-032", "GET", "client/fs/cat/{alloc}", "text", status=400, text="must provide a file name"),
    Row("API-ERR-033", "GET", "client/fs/logs/{alloc}?type=stdout", "text", status=400, text="must provide task name"),
    Row("API-ERR-034", "GET", "client/fs/logs/{alloc}?task=main&type=x", "text", status=400,
        text="must provide log type (stdout/stderr)"),
    Row("API-ERR-035", "GET", "client/fs/logs/{alloc}?task=main&type=stdout&origin=x", "text", status=400,
        text="origin must be start or end"),
    Row("API-ERR-036", "GET", "client/fs/logs/{alloc}?task=ghost&type=stdout", "text", status=400,
        text='unknown task name "ghost"'),
    Row("API-ERR-037", "GET", "client/stats?node_id=5c1a8c35-0d8e-4b8e-9a7b-000000000000", "text", status=404,
        text='Unknown node "5c1a8c35-0d8e-4b8e-9a7b-000000000000"'),
    Row("API-ERR-040", "GET", "evaluation/5c1a8c35-0d8e-4b8e-9a7b-000000000000", "text", status=404,
        text="eval not found"),
    Row("API-ERR-041", "GET", "evaluations?job=web&filter=ID+is+empty", "text", status=400,
        text="Filter expression cannot be used with other filter parameters"),
    Row("API-ERR-042", "GET", "deployment/5c1a8c35-0d8e-4b8e-9a7b-000000000000", "text", status=404,
        text="deployment not found"),
    Row("API-ERR-043", "PUT", "deployment/pause/{deployment}", "text", {}, 400, "DeploymentID must be specified"),
    Row("API-ERR-044", "PUT", "deployment/pause/{deployment}", "text", {"DeploymentID": "x"}, 400,
        "Deployment ID does not match"),
    Row("API-ERR-045", "PUT", "deployment/fail/{deployment}", "text", None, 400, "can't fail terminal deployment"),
    Row("API-ERR-050", "GET", "node/5c1a8c35-0d8e-4b8e-9a7b-000000000000", "text", status=404, text="node not found"),
    Row("API-ERR-051", "PUT", "node/5c1a8c35-0d8e-4b8e-9a7b-000000000000/eligibility", "text",
        {"Eligibility": "eligible"}, 404, "node not found"),
    Row("API-ERR-052", "GET", "node/pool/ghost", "text", status=404, text="node pool not found"),
    Row("API-ERR-053", "PUT", "node/pool/a", "text", {"Name": "b"}, 400,
        "Node pool name does not match request path"),
    Row("API-ERR-054", "GET", "node/pool/default/nodes?prefix=a", "text", status=400,
        text="prefix argument not allowed"),
    Row("API-ERR-055", "GET", "namespace/ghost", "text", status=404, text="Namespace not found"),
    Row("API-ERR-056", "PUT", "namespace/a", "text", {"Name": "b"}, 400,
        "Namespace name does not match request path"),
    Row("API-ERR-057", "GET", "scaling/policy/ghost", "text", status=404, text="policy not found"),
    Row("API-ERR-060", "GET", "jobs?index=x", "text", status=400, text="Invalid index"),
    Row("API-ERR-061", "GET", "jobs?wait=x", "text", status=400, text="Invalid wait time"),
    Row("API-ERR-062", "GET", "jobs?stale=x", "text", status=400,
        text="Expect `true` or `false` for `stale` query string parameter"),
    Row("API-ERR-063", "GET", "jobs?per_page=x", "text", status=400,
        text="Expect a number for `per_page` query string parameter"),
    Row("API-ERR-064", "GET", "jobs?region=mars", "text", status=500, text="No path to region"),
    Row("API-ERR-065", "PATCH", "jobs", "text", status=405, text="Invalid method"),
    Row("API-ERR-066", "POST", "system/gc", "text", status=405, text="Invalid method"),
    Row("API-ERR-067", "GET", "event/stream?topic=a:b:c", "text", status=400, text="Invalid topic query: a:b:c"),
    Row("API-ERR-068", "PUT", "operator/scheduler/configuration", "text", {"SchedulerAlgorithm": "x"}, 400,
        "invalid scheduler algorithm: x"),
    Row("API-ERR-069", "PUT", "agent/join", "text", None, 400, "missing address to join"),
    Row("API-ERR-070", "PUT", "agent/force-leave", "text", None, 400, "missing node to force leave"),
    Row("API-ERR-073", "DELETE", "evaluations", "text", {"EvalIDs": ["a"]}, 400,
        "eval broker is enabled; eval broker must be paused to delete evals"),
    Row("API-ERR-074", "PUT", "deployment/unblock/{deployment}", "text", {"DeploymentID": "{deployment}"}, 400,
        "deployment is successful already"),
    Row("API-ERR-075", "GET", "plugin/csi/ghost", "text", status=404, text="plugin not found"),
    Row("API-ERR-076", "PUT", "job/ghost/versions/a/tag", "text", {}, 404, "job not found"),
    Row("API-ERR-077", "GET", "quotas", "text", status=501, text="Nomad Enterprise only endpoint"),
    Row("API-ERR-078", "PUT", "recommendations/apply", "text", status=501, text="Nomad Enterprise only endpoint"),
    Row("API-ERR-079", "GET", "agent/monitor/export?on_disk=true", "text", status=400,
        text="this agent writes no log file: set log_file, or follow /v1/agent/monitor"),
    Row("API-ERR-080", "PUT", "agent/schedulers/config", "text", {"num_schedulers": 1}, 501,
        "the number of schedulers is set by `server { num_schedulers }` and a restart"),
    Row("API-ERR-072", "GET", "no/such/route", "empty", status=404),
)  # fmt: skip

WRITES = (
    Row("API-WRI-001", "PUT", "jobs", "JobRegisterResponse", {"Job": shell_job("fresh")}, fresh=True),
    Row("API-WRI-002", "POST", "jobs", "JobRegisterResponse", {"Job": shell_job("fresh")}, fresh=True),
    Row("API-WRI-003", "PUT", "job/fresh", "JobRegisterResponse", {"Job": shell_job("fresh", Priority=60)}),
    Row("API-WRI-004", "PUT", "job/fresh/evaluate", "JobRegisterResponse", {"JobID": "fresh"}),
    Row("API-WRI-005", "PUT", "job/fresh/revert", "JobRegisterResponse", {"JobID": "fresh", "JobVersion": 0}),
    Row("API-WRI-006", "PUT", "job/fresh/stable", "IndexResponse", {"JobID": "fresh", "JobVersion": 1, "Stable": True}),
    Row("API-WRI-007", "PUT", "job/web/scale", "JobRegisterResponse", {"Count": 1, "Target": {"Group": "main"}}),
    Row("API-WRI-008", "PUT", "job/letters/dispatch", "JobDispatchResponse", {"JobID": "letters"}),
    Row("API-WRI-009", "PUT", "job/letters/dispatch/payload", "JobDispatchResponse", b"bytes"),
    Row("API-WRI-010", "PUT", "job/yearly/periodic/force", "PeriodicForceResponse"),
    Row("API-WRI-047", "DELETE", "service/page/{instance}", "empty"),
    Row("API-WRI-011", "PUT", "client/allocation/{alloc}/signal", "IndexResponse", {"Signal": "SIGWINCH"}),
    Row("API-WRI-012", "PUT", "client/allocation/{alloc}/restart", "IndexResponse", {"TaskName": "main"}),
    Row("API-WRI-013", "PUT", "allocation/{alloc}/stop", "AllocStopResponse"),
    Row("API-WRI-014", "PUT", "client/allocation/{ended}/gc", "empty"),
    Row("API-WRI-015", "GET", "client/allocation/{child_alloc}/gc", "empty"),
    Row("API-WRI-017", "PUT", "client/gc", "empty"),
    Row("API-WRI-018", "GET", "client/gc", "empty"),
    Row("API-WRI-016", "POST", "client/metadata", "ClientMetadata", {"Meta": {"rack": "r1"}}),
    Row("API-WRI-020", "PUT", "deployment/allocation-health/{manual}", "DeploymentUpdateResponse",
        {"DeploymentID": "{manual}", "HealthyAllocationIDs": ["{manual_alloc}"]}),
    Row("API-WRI-021", "PUT", "deployment/pause/{canary}", "DeploymentUpdateResponse",
        {"DeploymentID": "{canary}", "Pause": True}),
    Row("API-WRI-022", "PUT", "deployment/pause/{canary}", "DeploymentUpdateResponse",
        {"DeploymentID": "{canary}", "Pause": False}),
    Row("API-WRI-023", "PUT", "deployment/promote/{canary}", "DeploymentUpdateResponse",
        {"DeploymentID": "{canary}", "All": True}),
    Row("API-WRI-024", "PUT", "deployment/fail/{unhealthy}", "DeploymentUpdateResponse"),
    Row("API-WRI-030", "PUT", "node/{node}/evaluate", "NodeUpdateResponse"),
    Row("API-WRI-031", "PUT", "node/{node}/eligibility", "NodeDrainResponse", {"Eligibility": "ineligible"}),
    Row("API-WRI-032", "PUT", "node/{node}/eligibility", "NodeDrainResponse", {"Eligibility": "eligible"}),
    Row("API-WRI-033", "PUT", "node/{node}/drain", "NodeDrainResponse", {"DrainSpec": {"Deadline": SECOND}}),
    Row("API-WRI-034", "PUT", "node/{node}/drain", "NodeDrainResponse", {"DrainSpec": None, "MarkEligible": True}),
    Row("API-WRI-040", "PUT", "node/pools", "empty", {"Name": "fast"}, fresh=True),
    Row("API-WRI-041", "PUT", "node/pool/fast", "empty", {"Name": "fast", "Description": "quick ones"}),
    Row("API-WRI-042", "DELETE", "node/pool/fast", "empty"),
    Row("API-WRI-043", "PUT", "namespaces", "empty", {"Name": "third"}),
    Row("API-WRI-044", "PUT", "namespace", "empty", {"Name": "third", "Description": "one more"}),
    Row("API-WRI-045", "PUT", "namespace/third", "empty", {"Name": "third"}),
    Row("API-WRI-046", "DELETE", "namespace/third", "empty"),
    Row("API-WRI-048", "PUT", "operator/scheduler/configuration", "SchedulerConfigurationWritten",
        {"SchedulerAlgorithm": "spread"}),
    Row("API-WRI-056", "PUT", "operator/autopilot/configuration", "true", {"MinQuorum": 3}),
    Row("API-WRI-049", "PUT", "job/fresh/versions/good/tag", "JobTagResponse", {"Version": 1, "Description": "works"}),
    Row("API-WRI-055", "DELETE", "job/fresh/versions/good/tag", "JobTagResponse"),
    Row("API-WRI-050", "DELETE", "job/fresh", "JobDeregisterResponse"),
    Row("API-WRI-051", "DELETE", "job/fresh?purge=true", "JobDeregisterResponse"),
    Row("API-WRI-052", "DELETE", "job/ghost", "JobDeregisterResponse"),
    Row("API-WRI-053", "PUT", "system/gc", "empty"),
    Row("API-WRI-054", "PUT", "system/reconcile/summaries", "empty"),
    Row("API-WRI-099", "PUT", "node/{node}/purge", "NodeUpdateResponse"),
)  # fmt: skip


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with running(tmp_path_factory.mktemp("conformance")) as made:
        yield made


@pytest.fixture(scope="module")
def world(agent: Agent) -> dict[str, str]:
    """Jobs of every sort, and the names of what came of them."""
    agent.put("/v1/namespace", {"Name": "other"})
    agent.put("/v1/node/pools", {"Name": "gpu"})
    check = {"Type": "tcp", "Interval": SECOND, "Timeout": SECOND}
    group = {
        "Networks": [{"DynamicPorts": [{"Label": "http"}]}],
        "Services": [{"Name": "page", "PortLabel": "http", "Provider": "nomad", "Checks": [check]}],
        "Scaling": {"Min": 1, "Max": 4},
        "RestartPolicy": {"Attempts": 9, "Interval": 60 * SECOND, "Delay": 0, "Mode": "fail"},
    }
    task = {"Actions": [{"Name": "hello", "Command": "/bin/echo", "Args": ["hello"]}]}
    source = {"Source": 'job "web" {}', "Format": "hcl2", "Variables": ""}
    script = "echo ready; exec sleep 1000"
    for version, tag in enumerate(("first", "second")):
        web = shell_job("web", script, group=group, task=task, Meta={"tag": tag}, Spreads=[{"Attribute": "${node.id}"}])
        agent.put("/v1/jobs", {"Job": web, "Submission": source})
        _deployed(agent, "web", version, "successful")
    (web_alloc,) = agent.running("web")
    agent.run(shell_job("letters", "true", kind="batch", ParameterizedJob={"Payload": "optional"}))
    child = agent.put("/v1/job/letters/dispatch", {})["DispatchedJobID"]
    agent.run(shell_job("yearly", "true", kind="batch", Periodic={"Specs": ["0 3 1 1 *"], "SpecType": "cron"}))
    second = agent.put("/v1/job/letters/dispatch", {})["DispatchedJobID"]
    ended = [eventually(lambda job_id=job_id: agent.allocations(job_id))[0]["ID"] for job_id in (child, second)]
    for alloc_id in ended:
        agent.alloc_until(alloc_id, lambda alloc: alloc["ClientStatus"] == "complete")
    stuck = shell_job("stuck", Constraints=[{"LTarget": "${attr.kernel.name}", "RTarget": "plan9", "Operand": "="}])
    failed = agent.evaluation(agent.run(stuck))
    for job_id in ("manual", "unhealthy"):
        agent.run(shell_job(job_id, Update=quick_update(HealthCheck="manual")))
    for version, status in enumerate(("successful", "running")):
        agent.run(shell_job("canary", task={"Env": {"TAG": status}}, Update=quick_update(Canary=1)))
        _deployed(agent, "canary", version, status)
    other = shell_job("web", count=0, Namespace="other")
    agent.put("/v1/jobs?namespace=other", {"Job": other})
    eventually(lambda: agent.get(f"/v1/allocation/{web_alloc['ID']}/checks"))
    return {
        "alloc": web_alloc["ID"],
        "child": quote(child, safe=""),
        "ended": ended[0],
        "child_alloc": ended[1],
        "eval": web_alloc["EvalID"],
        "blocked": failed["BlockedEval"],
        "deployment": agent.get("/v1/job/web/deployment")["ID"],
        "manual": agent.get("/v1/job/manual/deployment")["ID"],
        "manual_alloc": agent.running("manual")[0]["ID"],
        "unhealthy": agent.get("/v1/job/unhealthy/deployment")["ID"],
        "canary": agent.get("/v1/job/canary/deployment")["ID"],
        "node": agent.get("/v1/nodes")[0]["ID"],
        "policy": agent.get("/v1/scaling/policies")[0]["ID"],
        "instance": agent.get("/v1/service/page")[0]["ID"],
    }


def _deployed(agent: Agent, job_id: str, version: int, status: str) -> None:
    """Wait until a version's only allocation is healthy and its deployment has a status."""

    def reached(found: Any) -> bool:
        healthy = found["TaskGroups"]["main"]["HealthyAllocs"]
        return bool((found["JobVersion"], found["Status"], healthy) == (version, status, 1))

    agent.deployment(job_id, reached)


def ask(agent: Agent, world: Place, row: Row) -> Answer:
    body = row.body
    if isinstance(body, dict):
        body = json.loads(_filled(json.dumps(body), world))
    return agent.request(row.verb, f"/v1/{_filled(row.path, world)}", body)


def _filled(text: str, world: Place) -> str:
    for name, value in world.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def check(answer: Answer, row: Row) -> None:
    assert answer.status == row.status, (row.id, answer.status, answer.text)
    if row.kind == "text":
        assert answer.text == row.text
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        return
    if row.fresh:
        assert answer.index >= 1
    if row.fresh and row.verb == "GET":
        assert answer.headers["x-nomad-knownleader"] == "true"
        assert int(answer.headers["x-nomad-lastcontact"]) == 0
    if row.kind == "empty":
        assert answer.body == b""
    elif row.kind == "raw":
        assert answer.body
        assert answer.headers["content-type"].startswith("text/plain")
    elif row.kind == "frames":
        frame, _ = json.JSONDecoder().raw_decode(answer.text)
        assert frame.keys() == {"Offset", "Data", "File"}
    else:
        assert answer.headers["content-type"] == "application/json"
        _check_json(answer.json, row)


def _check_json(value: Any, row: Row) -> None:
    if row.kind == "null":
        assert value is None
    elif row.kind == "true":
        assert value is True
    elif row.kind == "string":
        assert isinstance(value, str)
    elif row.kind == "strings":
        assert value
        assert all(isinstance(item, str) for item in value)
    else:
        assert list(misfits(value, row.kind)) == []
        assert value or not row.some


@pytest.mark.parametrize("row", READS, ids=lambda row: row.id)
def test_read_has_nomads_keys_and_headers(agent: Agent, world: Place, row: Row) -> None:
    check(ask(agent, world, row), row)


@pytest.mark.parametrize("row", ERRORS, ids=lambda row: row.id)
def test_error_has_nomads_text(agent: Agent, world: Place, row: Row) -> None:
    check(ask(agent, world, row), row)


@pytest.mark.parametrize(
    "path",
    [
        "client/fs/ls/e719",
        "client/fs/cat/e719?path=a",
        "client/fs/logs/e719?task=main&type=stdout",
        "client/allocation/e719/stats",
        "allocation/zz",
        "allocation/zz/services",
        "allocation/%00",
    ],
)
def test_malformed_allocation_id_is_refused_with_a_text(agent: Agent, world: Place, path: str) -> None:
    """B153."""
    answer = agent.request("GET", f"/v1/{path}")
    assert answer.status in (400, 404)
    assert answer.text
    assert agent.request("GET", "/v1/agent/health").status == 200


@pytest.mark.parametrize("path", ["/nope", "nope", "/alloc/nope", "/alloc/logs/main.stdout.0/nope"])
def test_stat_of_a_missing_file_is_404(agent: Agent, world: Place, path: str) -> None:
    """B154."""
    answer = agent.request("GET", f"/v1/client/fs/stat/{world['alloc']}?path={path}")
    assert (answer.status, bool(answer.text)) == (404, True)


def test_scaling_policy_names_the_namespace_of_the_request(agent: Agent, world: Place) -> None:
    """B118."""
    job = shell_job("scaled", count=0, group={"Scaling": {"Min": 0, "Max": 4}})
    assert "Namespace" not in job
    agent.put("/v1/jobs?namespace=other", {"Job": job})
    (policy,) = agent.get("/v1/scaling/policies", namespace="other")
    assert policy["Target"] == {"Namespace": "other", "Job": "scaled", "Group": "main"}
    assert agent.get(f"/v1/scaling/policy/{policy['ID']}")["Target"]["Namespace"] == "other"
    agent.delete("/v1/job/scaled?namespace=other&purge=true")


# Lists

LISTS = (
    "jobs", "jobs/statuses", "allocations", "evaluations", "deployments", "nodes", "node/pools", "namespaces",
    "services", "scaling/policies",
)  # fmt: skip


@pytest.mark.parametrize("path", [*LISTS, "service/none", "job/ghost/allocations", "job/ghost/evaluations"])
def test_list_is_never_null_and_its_index_never_zero(agent: Agent, world: Place, path: str) -> None:
    answer = agent.request("GET", f"/v1/{path}?namespace=other&prefix=ffffffff-none")
    assert isinstance(answer.json, list)
    assert answer.index >= 1


@pytest.mark.parametrize("path", ["jobs", "allocations", "evaluations", "deployments"])
def test_every_namespace_is_listed_with_a_star(agent: Agent, world: Place, path: str) -> None:
    """B147: each job of the list tells its namespace."""
    everything = agent.get(f"/v1/{path}", namespace="*")
    own = agent.get(f"/v1/{path}")
    others = agent.get(f"/v1/{path}", namespace="other")
    assert {item["Namespace"] for item in own} == {"default"}
    assert len(everything) == len(own) + len(others)
    if path == "jobs":
        assert [(job["Namespace"], job["ID"]) for job in others] == [("other", "web")]


@pytest.mark.parametrize(
    "path", ["jobs", "jobs/statuses", "allocations", "evaluations", "deployments", "node/pools", "evaluations?prefix="]
)
@pytest.mark.parametrize("reverse", ["false", "true"])
def test_pages_are_the_whole_list_once_each_in_its_order(agent: Agent, world: Place, path: str, reverse: str) -> None:
    query = {"namespace": "*", "reverse": reverse}
    whole = [_name(item) for item in agent.get(f"/v1/{path}", **query)]
    assert len(whole) > 2
    seen: list[tuple[str, str]] = []
    token = ""
    for _ in range(len(whole) + 1):
        answer = agent.request("GET", f"/v1/{path}", query={**query, "per_page": 2, "next_token": token})
        assert len(answer.json) <= 2
        seen += [_name(item) for item in answer.json]
        token = answer.headers.get("x-nomad-nexttoken", "")
        if not token:
            break
    assert seen == whole


def _name(item: Any) -> tuple[str, str]:
    return item.get("Namespace", ""), item.get("ID") or item["Name"]


def test_orders_are_nomads(agent: Agent, world: Place) -> None:
    jobs_ = [(job["Namespace"], job["ID"]) for job in agent.get("/v1/jobs", namespace="*")]
    assert jobs_ == sorted(jobs_)
    assert [(j["Namespace"], j["ID"]) for j in agent.get("/v1/jobs", namespace="*", reverse="true")] == jobs_[::-1]
    for path in ("allocations", "evaluations", "deployments"):
        created = [(item["CreateIndex"], item["ID"]) for item in agent.get(f"/v1/{path}")]
        assert created == sorted(created)
    statuses = [job["ModifyIndex"] for job in agent.get("/v1/jobs/statuses")]
    assert statuses == sorted(statuses, reverse=True)


def test_tokens_have_nomads_form(agent: Agent, world: Place) -> None:
    def token(path: str) -> str:
        return agent.request("GET", f"/v1/{path}&per_page=1").headers["x-nomad-nexttoken"]

    second = agent.get("/v1/jobs?namespace=*")[1]
    assert token("jobs?namespace=*") == f"{second['Namespace']}.{second['ID']}"
    second = agent.get("/v1/allocations")[1]
    assert token("allocations?") == f"{second['CreateIndex']}.{second['ID']}"
    assert token("node/pools?") == agent.get("/v1/node/pools")[1]["Name"]


def test_filter_selects_by_fields_of_the_whole_object(agent: Agent, world: Place) -> None:
    """B089: newer clients ask for what is not nil; an unknown operator is the caller's mistake."""

    def ids(path: str, expression: str) -> list[str]:
        return [item["ID"] for item in agent.get(f"/v1/{path}", filter=expression)]

    assert ids("jobs", 'Meta["tag"] == "second"') == ["web"]
    assert ids("jobs", 'ID matches "^ye" or Name == "letters"') == ["letters", "yearly"]
    assert "yearly" in ids("jobs", "Type == batch and not (ParentID is not empty)")
    assert ids("evaluations", 'Status == "blocked"') == [world["blocked"]]
    assert set(ids("allocations", 'JobID == "web" and ClientStatus == "running"')) == {world["alloc"]}
    assert ids("nodes", 'Status == "down"') == []
    assert {each.split("/")[0] for each in ids("jobs", "ParameterizedJob is not nil")} == {"letters"}
    operator = agent.request("GET", "/v1/jobs", query={"prefix": "x", "filter": "ParameterizedJob is truly nil"})
    assert operator.status == 400
    bad = agent.request("GET", "/v1/jobs?filter=(")
    assert bad.status == 400
    assert bad.text.startswith("failed to create result paginator: ")
    unknown = agent.request("GET", "/v1/jobs", query={"filter": 'Colour == "red"'})
    assert unknown.status == 400
    assert unknown.text.startswith("failed to read result page: ")


@pytest.mark.parametrize("length", [1, 2, 7, 8, 9, 13, 14, 36])
def test_prefix_of_any_length_finds(agent: Agent, world: Place, length: int) -> None:
    assert world["alloc"] in [item["ID"] for item in agent.get("/v1/allocations", prefix=world["alloc"][:length])]
    assert world["eval"] in [item["ID"] for item in agent.get("/v1/evaluations", prefix=world["eval"][:length])]
    assert world["node"] in [item["ID"] for item in agent.get("/v1/nodes", prefix=world["node"][:length])]
    assert [job["ID"] for job in agent.get("/v1/jobs", prefix="we")] == ["web"]


def test_pretty_indents_by_four_and_ends_the_line(agent: Agent, world: Place) -> None:
    for query, indented in (("pretty", True), ("pretty=1", True), ("pretty=0", False), ("", False)):
        body = agent.request("GET", f"/v1/nodes?{query}").text
        assert body.startswith("[\n    {\n        ") == indented
        assert body.endswith("]\n") == indented


def test_html_is_not_escaped(agent: Agent, world: Place) -> None:
    agent.run(shell_job("marked", count=0, Meta={"text": "<a href='x'>&</a>"}))
    assert b"<a href='x'>&</a>" in agent.request("GET", "/v1/job/marked").body
    agent.purge("marked")


def test_keys_are_taken_in_any_case_and_unknown_ones_ignored(agent: Agent, world: Place) -> None:
    body = {"job": {"id": "cased", "TYPE": "batch", "taskGroups": [], "Colour": "red"}, "Colour": "red"}
    refused = agent.request("PUT", "/v1/jobs", body)
    assert (refused.status, "Missing job task groups" in refused.text) == (400, True)


def test_a_job_id_may_hold_slashes_escaped_or_not(agent: Agent, world: Place) -> None:
    agent.run(shell_job("a/plan/b", count=0))
    for path in ("a%2Fplan%2Fb", "a/plan/b"):
        assert agent.get(f"/v1/job/{path}")["ID"] == "a/plan/b"
        assert agent.get(f"/v1/job/{path}/evaluations")
        body = {"Job": shell_job("a/plan/b", count=1)}
        assert agent.put(f"/v1/job/{path}/plan", body)["Annotations"]["DesiredTGUpdates"]["main"]["Place"] == 1
    agent.purge("a/plan/b")


# Blocking queries


def test_blocking_read_waits_for_a_newer_index(agent: Agent, world: Place) -> None:
    index = eventually(lambda: _index_of_quiet_jobs(agent))
    answers: list[Answer] = []
    reader = threading.Thread(target=lambda: answers.append(agent.request("GET", f"/v1/jobs?index={index}&wait=20s")))
    reader.start()
    agent.run(shell_job("news", count=0))
    reader.join(5)
    (answer,) = answers
    assert answer.index > index
    assert "news" in [job["ID"] for job in answer.json]
    agent.purge("news")


def _index_of_quiet_jobs(agent: Agent) -> int:
    """The index of jobs when a read that waited for a newer one waited to its end; 0 when something happened."""
    index = agent.request("GET", "/v1/jobs").index
    began = time.monotonic()
    answer = agent.request("GET", f"/v1/jobs?index={index}&wait=200ms")
    assert answer.status == 200
    waited_to_the_end = 0.2 <= time.monotonic() - began < 2
    assert waited_to_the_end or answer.index > index
    return index if answer.index == index else 0


def test_index_zero_and_an_old_index_answer_at_once(agent: Agent, world: Place) -> None:
    for path in LISTS:
        began = time.monotonic()
        assert agent.request("GET", f"/v1/{path}?index=0&wait=10s").status == 200
        if path != "node/pools":
            assert agent.request("GET", f"/v1/{path}?index=1&wait=10s&namespace=*").status == 200
        assert time.monotonic() - began < 5


def test_no_write_is_missed_between_a_read_and_the_next(agent: Agent, world: Place) -> None:
    index = agent.request("GET", "/v1/job/steps").headers.get("x-nomad-index", "1")
    seen: list[str] = []

    def follow() -> None:
        at = int(index)
        while "39" not in seen[-1:]:
            answer = agent.request("GET", f"/v1/job/steps?index={at}&wait=5s")
            if answer.status == 200:
                at = answer.index
                seen.append(answer.json["Meta"]["step"])

    reader = threading.Thread(target=follow)
    reader.start()
    for step in range(40):
        agent.run(shell_job("steps", count=0, Meta={"step": str(step)}))
    reader.join(10)
    assert not reader.is_alive()
    steps = [int(step) for step in seen]
    assert steps == sorted(steps)
    agent.purge("steps")


@pytest.mark.parametrize(
    "path",
    [
        "job/web",
        "job/web/allocations",
        "allocation/{alloc}",
        "jobs/statuses",
        "node/{node}/allocations",
    ],
)
def test_reads_about_one_thing_wake_when_it_changes(agent: Agent, world: Place, path: str) -> None:
    """B142, of jobs/statuses."""
    target = f"/v1/{_filled(path, world)}"
    index = agent.request("GET", target).index
    restarts = agent.get(f"/v1/allocation/{world['alloc']}")["TaskStates"]["main"]["Restarts"]
    answers: list[Answer] = []
    reader = threading.Thread(target=lambda: answers.append(agent.request("GET", f"{target}?index={index}&wait=20s")))
    reader.start()
    if path == "job/web":
        agent.put("/v1/job/web/stable", {"JobID": "web", "JobVersion": 1, "Stable": False})
    else:
        agent.put(f"/v1/client/allocation/{world['alloc']}/restart", {"TaskName": "main"})
        restarts += 1
    reader.join(10)
    assert not reader.is_alive()
    assert answers[0].index > index

    def again(alloc: Any) -> bool:
        state = alloc["TaskStates"]["main"]
        return bool((state["State"], state["Restarts"]) == ("running", restarts))

    agent.alloc_until(world["alloc"], again)


def test_a_summary_wakes_when_its_counts_change(agent: Agent) -> None:
    agent.run(shell_job("counted", "exec sleep 60"))
    agent.running("counted")
    index = agent.request("GET", "/v1/job/counted/summary").index
    answers: list[Answer] = []
    target = f"/v1/job/counted/summary?index={index}&wait=20s"
    reader = threading.Thread(target=lambda: answers.append(agent.request("GET", target)))
    reader.start()
    agent.run(shell_job("counted", "exec sleep 60", count=2))
    reader.join(15)
    assert not reader.is_alive()
    assert answers[0].index > index
    agent.purge("counted")


# Streams


def test_streams_begin_with_nomads_first_bytes(agent: Agent, world: Place) -> None:
    connection = HTTPConnection(HOST, agent.ports["http"], timeout=10)
    connection.request("GET", "/v1/event/stream?topic=Job&index=0&namespace=*")
    response = connection.getresponse()
    assert response.headers["Cache-Control"] == "no-cache"
    assert response.readline() == b"{}\n"
    batch = json.loads(response.readline())
    assert batch.keys() == {"Index", "Events"}
    assert batch["Events"][0].keys() == {"Topic", "Type", "Key", "Namespace", "FilterKeys", "Index", "Payload"}
    connection.close()


# Writes


@pytest.mark.parametrize("row", WRITES, ids=lambda row: row.id)
def test_write_answers_with_nomads_keys(agent: Agent, world: Place, row: Row) -> None:
    check(ask(agent, world, row), row)


# The tables themselves

ELSEWHERE = {
    "client/allocation/{id}/exec": "tests/e2e/test_single_machine.py",
    "job/…/action": "tests/unit/api/test_files.py, and tests/e2e/test_single_machine.py",
    "agent/monitor": "tests/e2e/test_single_machine.py",
    "event/stream": "test_streams_begin_with_nomads_first_bytes",
    "agent/monitor/export": "tests/unit/api/test_debug.py",
    "deployment/unblock/{id}": "tests/integration/test_server_endpoints.py",
    "evaluations": "tests/integration/test_server_endpoints.py",
    "client/allocation/{id}/snapshot": "tests/cluster/test_volumes.py",
    **{
        route.path: "tests/unit/api/test_volumes.py"
        for route in app.ROUTES
        if route.path.startswith(("volume", "plugin/"))
    },
    "openapi.json": "tests/unit/api/test_openapi.py",
    "agent/servers": "API-AGE-005; setting them is tried in tests/unit/api/test_agent.py",
    "agent/schedulers/config": "API-AGE-011 and API-ERR-080",
    "overlays": "tests/unit/state/commands/test_overlays.py",
    "overlay/{id}": "tests/unit/state/commands/test_overlays.py",
    "client/allocation/{id}/pause": "tests/unit/api/test_enterprise.py",
    "operator/license": "tests/unit/api/test_enterprise.py",
    **dict.fromkeys(enterprise.PATHS, "tests/unit/api/test_enterprise.py"),
}
"""Routes that a row cannot ask, and the test that does."""
ELSEWHERE_BELOW = {
    "acl/": "tests/integration/test_acl_matrix.py",
    "agent/keyring/": "tests/e2e/test_regions.py",
    "operator/": "tests/integration/test_acl_matrix.py, and tests of several servers",
    "var": "tests/integration/test_acl_matrix.py, and tests of variables",
    "volume": "tests of volumes",
    "client/identity": "tests of identities",
}
"""The same for all routes below a path: what an agent without tokens and other servers cannot be asked."""
OUR_OWN = {
    *kv.ROUTES,
    *serving.ROUTES,
    *(route for route in app.ROUTES if route.path == "service/{name}/{id}" and "PUT" in route.verbs),
}
"""Routes that Nomad does not have."""
OUR_OWN_OF_ONE_JOB = {("GET", "explain")}


def test_ids_are_given_once() -> None:
    ids = [row.id for row in (*READS, *ERRORS, *WRITES)]
    assert len(ids) == len(set(ids))


def test_every_route_has_a_row() -> None:
    asked = {(row.verb, row.path.partition("?")[0]) for row in (*READS, *WRITES)}
    missing = []
    for route in app.ROUTES:
        if route in OUR_OWN or route.path in ELSEWHERE or route.path.startswith(("job/", *ELSEWHERE_BELOW)):
            continue
        for verb in route.verbs.split():
            twin = {"PUT", "POST"} if verb in {"PUT", "POST"} else {verb}
            if not any(method in twin and _fits(path, route.path) for method, path in asked):
                missing.append(f"{verb} {route.path}")
    for verb, suffix in jobs.OF_ONE_JOB.keys() - OUR_OWN_OF_ONE_JOB:
        if f"job/…/{suffix}" in ELSEWHERE:
            continue
        if not any(method == verb and jobs.split_job_path(path[4:])[1] == suffix for method, path in asked):
            missing.append(f"{verb} job/…/{suffix}")
    assert missing == []


def _fits(path: str, route: str) -> bool:
    """Whether a row's path is one that a route answers."""
    parts, wanted = path.split("/"), route.split("/")
    return len(parts) == len(wanted) and all(
        want.startswith("{") or part == want for part, want in zip(parts, wanted, strict=True)
    )
