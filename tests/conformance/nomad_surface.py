"""What Nomad has: its routes, commands with their flags, blocks of job files and metrics.

PUT stands for POST too where both are taken.
"""

ROUTES = """
GET /v1/jobs
PUT /v1/jobs
PUT /v1/jobs/parse
GET /v1/jobs/statuses
POST /v1/jobs/statuses
GET /v1/job/{id}
PUT /v1/job/{id}
DELETE /v1/job/{id}
GET /v1/job/{id}/versions
GET /v1/job/{id}/submission
GET /v1/job/{id}/allocations
GET /v1/job/{id}/evaluations
GET /v1/job/{id}/deployments
GET /v1/job/{id}/deployment
GET /v1/job/{id}/summary
GET /v1/job/{id}/services
GET /v1/job/{id}/actions
GET /v1/job/{id}/action
PUT /v1/job/{id}/evaluate
PUT /v1/job/{id}/plan
PUT /v1/job/{id}/periodic/force
PUT /v1/job/{id}/dispatch
PUT /v1/job/{id}/dispatch/payload
PUT /v1/job/{id}/revert
PUT /v1/job/{id}/stable
GET /v1/job/{id}/scale
PUT /v1/job/{id}/scale
PUT /v1/job/{id}/versions/{tag}/tag
DELETE /v1/job/{id}/versions/{tag}/tag
PUT /v1/validate/job
GET /v1/allocations
GET /v1/allocation/{id}
GET /v1/allocation/{id}/services
GET /v1/allocation/{id}/checks
GET /v1/client/allocation/{id}/checks
PUT /v1/allocation/{id}/stop
GET /v1/client/allocation/{id}/stats
PUT /v1/client/allocation/{id}/restart
PUT /v1/client/allocation/{id}/signal
GET /v1/client/allocation/{id}/pause
PUT /v1/client/allocation/{id}/pause
GET /v1/client/allocation/{id}/exec
GET /v1/client/allocation/{id}/snapshot
PUT /v1/client/allocation/{id}/gc
PUT /v1/client/gc
GET /v1/evaluations
DELETE /v1/evaluations
GET /v1/evaluations/count
GET /v1/evaluation/{id}
GET /v1/evaluation/{id}/allocations
GET /v1/deployments
GET /v1/deployment/{id}
GET /v1/deployment/allocations/{id}
PUT /v1/deployment/fail/{id}
PUT /v1/deployment/pause/{id}
PUT /v1/deployment/promote/{id}
PUT /v1/deployment/unblock/{id}
PUT /v1/deployment/allocation-health/{id}
GET /v1/nodes
GET /v1/node/{id}
GET /v1/node/{id}/allocations
PUT /v1/node/{id}/evaluate
PUT /v1/node/{id}/drain
PUT /v1/node/{id}/eligibility
PUT /v1/node/{id}/purge
GET /v1/client/stats
GET /v1/client/metadata
POST /v1/client/metadata
GET /v1/client/identity
PUT /v1/client/identity/renew
GET /v1/node/pools
PUT /v1/node/pools
GET /v1/node/pool/{name}
PUT /v1/node/pool/{name}
DELETE /v1/node/pool/{name}
GET /v1/node/pool/{name}/nodes
GET /v1/node/pool/{name}/jobs
PUT /v1/search
PUT /v1/search/fuzzy
GET /v1/services
GET /v1/service/{name}
DELETE /v1/service/{name}/{id}
GET /v1/vars
GET /v1/var/{path}
PUT /v1/var/{path}
DELETE /v1/var/{path}
GET /v1/volumes
PUT /v1/volumes
PUT /v1/volume/csi/{id}
GET /v1/volume/csi/{id}
PUT /v1/volume/csi/{id}/create
DELETE /v1/volume/csi/{id}
DELETE /v1/volume/csi/{id}/delete
DELETE /v1/volume/csi/{id}/detach
GET /v1/volumes/external
PUT /v1/volumes/snapshot
GET /v1/volumes/snapshot
DELETE /v1/volumes/snapshot
GET /v1/plugins
GET /v1/plugin/csi/{id}
PUT /v1/volume/host/create
PUT /v1/volume/host/register
GET /v1/volume/host/{id}
DELETE /v1/volume/host/{id}
GET /v1/volumes/claims
DELETE /v1/volumes/claim/{id}
PUT /v1/acl/bootstrap
GET /v1/acl/policies
GET /v1/acl/policy/{name}
PUT /v1/acl/policy/{name}
DELETE /v1/acl/policy/{name}
GET /v1/acl/policy/self
GET /v1/acl/tokens
PUT /v1/acl/token
GET /v1/acl/token/{accessor}
PUT /v1/acl/token/{accessor}
DELETE /v1/acl/token/{accessor}
GET /v1/acl/token/self
PUT /v1/acl/token/onetime
PUT /v1/acl/token/onetime/exchange
GET /v1/acl/roles
PUT /v1/acl/role
GET /v1/acl/role/{id}
PUT /v1/acl/role/{id}
DELETE /v1/acl/role/{id}
GET /v1/acl/role/name/{name}
GET /v1/acl/auth-methods
PUT /v1/acl/auth-method
GET /v1/acl/auth-method/{name}
PUT /v1/acl/auth-method/{name}
DELETE /v1/acl/auth-method/{name}
GET /v1/acl/binding-rules
PUT /v1/acl/binding-rule
GET /v1/acl/binding-rule/{id}
PUT /v1/acl/binding-rule/{id}
DELETE /v1/acl/binding-rule/{id}
PUT /v1/acl/oidc/auth-url
PUT /v1/acl/oidc/complete-auth
PUT /v1/acl/login
PUT /v1/acl/identity/client-introduction-token
GET /v1/agent/self
GET /v1/agent/members
PUT /v1/agent/join
PUT /v1/agent/force-leave
GET /v1/agent/servers
PUT /v1/agent/servers
GET /v1/agent/health
GET /v1/agent/host
GET /v1/agent/monitor
GET /v1/agent/monitor/export
GET /v1/agent/pprof/cmdline
GET /v1/agent/pprof/profile
GET /v1/agent/pprof/trace
GET /v1/agent/pprof/goroutine
GET /v1/agent/pprof/heap
GET /v1/agent/keyring/list
GET /v1/agent/schedulers
GET /v1/agent/schedulers/config
PUT /v1/agent/schedulers/config
PUT /v1/agent/reload
GET /v1/operator/raft/configuration
DELETE /v1/operator/raft/peer
PUT /v1/operator/raft/transfer-leadership
GET /v1/operator/autopilot/configuration
PUT /v1/operator/autopilot/configuration
GET /v1/operator/autopilot/health
GET /v1/operator/scheduler/configuration
GET /v1/operator/snapshot
PUT /v1/operator/snapshot
GET /v1/operator/keyring/keys
PUT /v1/operator/keyring/rotate
DELETE /v1/operator/keyring/key/{id}
GET /v1/operator/license
POST /v1/operator/utilization
GET /v1/operator/upgrade-check/vault-workload-identity
PUT /v1/agent/keyring/install
PUT /v1/agent/keyring/use
PUT /v1/agent/keyring/remove
GET /v1/status/leader
GET /v1/status/peers
GET /v1/regions
PUT /v1/operator/scheduler/configuration
PUT /v1/system/gc
PUT /v1/system/reconcile/summaries
GET /v1/scaling/policies
GET /v1/scaling/policy/{id}
GET /v1/event/stream
GET /v1/metrics
GET /.well-known/jwks.json
GET /.well-known/openid-configuration
GET /v1/namespaces
PUT /v1/namespace
GET /v1/namespace/{name}
PUT /v1/namespace/{name}
DELETE /v1/namespace/{name}
GET /v1/client/fs/ls/{id}
GET /v1/client/fs/stat/{id}
GET /v1/client/fs/cat/{id}
GET /v1/client/fs/readat/{id}
GET /v1/client/fs/stream/{id}
GET /v1/client/fs/logs/{id}
GET /v1/sentinel/policies
GET /v1/quotas
GET /v1/quota-usages
GET /v1/recommendations
GET /v1/sentinel/policy/{name}
GET /v1/quota/{name}
GET /v1/recommendation/{id}
PUT /v1/quota
PUT /v1/recommendation
PUT /v1/recommendations/apply
PUT /v1/operator/license
"""

COMMANDS = """
acl auth-method create: name type token-locality token-name-format max-token-ttl default config json t
acl auth-method delete:
acl auth-method info: json t
acl auth-method list: json t
acl auth-method update: type token-locality token-name-format max-token-ttl config default json t
acl binding-rule create: description auth-method selector bind-type bind-name json t
acl binding-rule delete:
acl binding-rule info: json t
acl binding-rule list: json t
acl binding-rule update: description selector bind-type bind-name no-merge json t
acl bootstrap: json t
acl policy apply: description job group task
acl policy delete:
acl policy info:
acl policy list: json t
acl policy self: json t
acl role create: name description json t
acl role delete:
acl role info: by-name json t
acl role list: json t
acl role update: name description no-merge json t
acl token create: name type global ttl json t accessor policy role-name role-id
acl token update: name type global policy role-name role-id json t
acl token delete:
acl token info:
acl token list: json t
acl token self:
alloc exec: job i t e task group
alloc signal: verbose s task
alloc pause: verbose state status task
alloc stop: detach verbose no-shutdown-delay
alloc fs: verbose H job group stat f tail n c
alloc logs: verbose job tail f stderr stdout n c task group
alloc restart: all-tasks verbose task
alloc checks: verbose json t
alloc status: short verbose stats json t ui
agent-info: json t
config validate:
deployment fail: detach verbose
deployment list: verbose json filter t
deployment pause: verbose
deployment promote: detach verbose group
deployment resume: detach verbose
deployment status: verbose json monitor t wait ui
deployment unblock: detach verbose
eval delete: filter yes
eval list: verbose json t ui per-page page-token filter job status
eval status: monitor verbose json t ui
fmt: check write list recursive
job action: task group alloc job i t e
job allocs: verbose all json t
job deployments: latest verbose all json t
job dispatch: detach verbose wait idempotency-token id-prefix-template ui priority meta
job eval: force-reschedule detach verbose
job history: p full json version t diff-tag diff-version
job init: short connect template list-templates
job inspect: json hcl with-vars t version
job periodic force: detach verbose
job plan: diff policy-override verbose json json-output hcl2-strict vault-namespace t var var-file
job promote: detach verbose group
job restart: all-tasks batch-size batch-wait group task no-shutdown-delay on-error reschedule yes verbose
job revert: detach verbose
job run: detach verbose output policy-override preserve-counts preserve-resources json hcl2-strict check-index
  consul-namespace vault-namespace eval-priority ui var var-file
job scale: check-index detach verbose
job scaling-events: verbose
job status: short evals all-allocs json t verbose ui
job stop: detach verbose global no-shutdown-delay yes purge eval-priority
job start: detach verbose
job tag apply: name description version
job tag unset: name
job validate: json hcl2-strict vault-namespace var var-file
license get:
login: method type login-token oidc-callback-addr json t
monitor: log-level log-include-location node-id server-id json
monitor export: node-id server-id logs-since service-name on-disk follow
namespace apply: json
namespace delete:
namespace inspect: t
namespace list: json t
namespace status: json t
node config: servers update-servers
node drain: enable disable deadline detach force no-deadline ignore-system keep-ineligible self yes monitor m meta
node eligibility: enable disable self
node identity get: json t
node identity renew:
node intro create: ttl node-name node-pool t json
node meta apply: unset node-id
node meta read: node-id t json
node status: short os quiet verbose allocs self stats json t filter per-page page-token ui
node pool apply: json
node pool delete:
node pool info: json t
node pool init: out quiet
node pool jobs: json filter page-token per-page t
node pool list: filter json page-token per-page t
node pool nodes: json filter page-token per-page t verbose
operator api: dryrun filter verbose X H
operator autopilot get-config: json t
operator autopilot set-config: cleanup-dead-servers max-trailing-logs last-contact-threshold
  server-stabilization-time enable-redundancy-zones disable-upgrade-migration enable-custom-upgrades min-quorum
operator autopilot health: json
operator client-state:
operator debug: duration event-index event-topic interval log-level log-include-location log-lookback
  log-file-export max-nodes node-class node-id server-id stale output pprof-duration pprof-interval verbose
  consul-http-addr consul-auth consul-token consul-token-file consul-client-cert consul-client-key consul-ca-cert
  consul-ca-path vault-address vault-token vault-ca-cert vault-ca-path vault-client-cert vault-client-key
operator gossip keyring install:
operator gossip keyring use:
operator gossip keyring list:
operator gossip keyring remove:
operator gossip keyring generate:
operator metrics: pretty format json t
operator raft list-peers: stale
operator raft remove-peer: peer-id
operator raft transfer-leadership: peer-address peer-id
operator raft info:
operator raft logs: pretty
operator raft state: last-index
operator raft migrate-backend: yes
operator scheduler get-config: json t
operator scheduler set-config: check-index scheduler-algorithm memory-oversubscription reject-job-registration
  pause-eval-broker preempt-batch-scheduler preempt-service-scheduler preempt-sysbatch-scheduler
  preempt-system-scheduler node-limit-for-feasibility-checks
operator root keyring list: verbose
operator root keyring remove: force
operator root keyring rotate: full now verbose prepublish
operator snapshot save: stale redact
operator snapshot inspect: json
operator snapshot state: filter
operator snapshot restore:
operator snapshot redact:
operator utilization: today-only output message
plugin status: type short verbose json t
quota apply: json
quota delete:
quota init: json
quota inspect: json t
quota list: json t
quota status: json t
recommendation apply: policy-override detach verbose
recommendation dismiss:
recommendation info: json t
recommendation list: json t job group task
scaling policy info: verbose json t
scaling policy list: verbose json t type job
sentinel list:
sentinel apply: description scope level
sentinel delete:
sentinel read: raw
server force-leave: prune
server join:
server members: detailed verbose json ui t
service list: json name t
service info: json verbose t filter per-page page-token
service delete:
setup consul: destroy y jwks-url jwks-ca-file
setup vault: destroy y jwks-url jwks-ca-file kv-path check json verbose t
status: verbose ui
system gc:
system reconcile summaries:
tls ca create: days name-constraint domain common-name country postal-code province locality street-address
  organization organizational-unit additional-domain
tls ca info:
tls cert create: ca cli client days domain key server additional-dnsname additional-ipaddress
tls cert info:
ui: authenticate show-url
var purge: check-index
var init: out quiet
var list: template per-page page-token filter ui out out
var put: force verbose check-index in template ui out out
var lock: verbose ttl delay shell early-return max-retry backoff out out
var get: item template ui out out
version:
volume init: json type
volume status: type short verbose json t node node-pool
volume register: policy-override id
volume deregister: force
volume detach:
volume create: detach verbose policy-override id
volume delete: type force secret
volume snapshot create: verbose parameter secret
volume snapshot delete: secret
volume snapshot list: plugin verbose per-page page-token secret
volume claim list: job group volume-name json verbose t
volume claim delete: y
windows service install: config-dir data-dir install-dir reinstall
windows service uninstall:
action:
exec:
fs:
init:
inspect:
logs:
plan:
run:
stop:
start:
validate:
agent: config dev dev-connect dev-consul dev-vault server client bootstrap-expect data-dir bind region dc node
  node-class node-pool servers join retry-join retry-interval retry-max rejoin encrypt raft-protocol
  network-interface network-speed meta log-level log-json log-file alloc-dir state-dir plugin-dir host-volumes-dir
  acl-enabled acl-replication-token cpu-total-compute
"""

BLOCKS = """
    job job.constraint job.affinity job.spread job.spread.target job.meta job.parameterized job.periodic job.update
    job.reschedule job.migrate job.multiregion job.vault job.secret job.ui job.ui.link group group.constraint
    group.affinity group.spread group.volume group.restart group.disconnect group.reschedule group.ephemeral_disk
    group.update group.migrate group.network group.network.port group.network.dns group.network.cni group.meta
    group.service group.scaling group.consul group.vault group.secret task task.lifecycle task.config
    task.constraint task.affinity task.env task.service task.resources task.resources.device task.resources.numa
    task.resources.network task.restart task.meta task.logs task.artifact task.vault task.consul task.template
    task.template.change_script task.template.wait task.dispatch_payload task.volume_mount task.csi_plugin
    task.scaling task.secret task.identity task.action task.schedule service.check service.check.header
    service.check.check_restart service.check_restart service.connect service.connect.sidecar_service
    service.connect.sidecar_task service.connect.gateway service.meta service.canary_meta service.tagged_addresses
    service.identity service.weights variable locals dynamic
"""

METRICS = """
    nomad.nomad.broker.total_ready nomad.nomad.broker.total_unacked nomad.nomad.broker.total_pending
    nomad.nomad.broker.total_waiting nomad.nomad.broker.total_cancelable nomad.nomad.broker.service_ready
    nomad.nomad.broker.service_unacked nomad.nomad.broker.wait_time nomad.nomad.broker.process_time
    nomad.nomad.broker.response_time nomad.nomad.broker.eval_waiting nomad.nomad.blocked_evals.total_blocked
    nomad.nomad.blocked_evals.total_escaped nomad.nomad.blocked_evals.total_quota_limit
    nomad.nomad.blocked_evals.cpu nomad.nomad.blocked_evals.memory nomad.nomad.plan.queue_depth
    nomad.nomad.plan.submit nomad.nomad.plan.evaluate nomad.nomad.plan.apply nomad.nomad.plan.wait_for_index
    nomad.nomad.plan.node_rejected nomad.nomad.plan.rejection_tracker.node_score nomad.nomad.plan.outstanding_apply
    nomad.nomad.worker.dequeue_eval nomad.nomad.worker.invoke_scheduler_service nomad.nomad.worker.submit_plan
    nomad.nomad.worker.wait_for_index nomad.nomad.worker.send_ack nomad.nomad.leader.barrier
    nomad.nomad.leader.reconcile nomad.nomad.leader.reconcileMember nomad.raft.apply nomad.raft.commitTime
    nomad.raft.leader.lastContact nomad.raft.state.leader nomad.raft.state.candidate nomad.raft.appliedIndex
    nomad.nomad.state.snapshotIndex nomad.nomad.heartbeat.active nomad.nomad.heartbeat.invalidate
    nomad.nomad.rpc.request nomad.nomad.rpc.request_error nomad.nomad.rpc.query nomad.nomad.rpc.accept_conn
    nomad.nomad.rpc.cross_region nomad.agent.http.connections nomad.agent.http.exceeded
    nomad.nomad.job_summary.queued nomad.nomad.job_summary.starting nomad.nomad.job_summary.running
    nomad.nomad.job_summary.complete nomad.nomad.job_summary.failed nomad.nomad.job_summary.lost
    nomad.nomad.job_summary.unknown nomad.nomad.job_status.pending nomad.nomad.job_status.running
    nomad.nomad.job_status.dead nomad.client.allocated.cpu nomad.client.allocated.memory
    nomad.client.allocated.disk nomad.client.unallocated.cpu nomad.client.unallocated.memory
    nomad.client.unallocated.disk nomad.client.allocations.migrating nomad.client.allocations.blocked
    nomad.client.allocations.pending nomad.client.allocations.running nomad.client.allocations.terminal
    nomad.client.allocations.start nomad.client.host.cpu.total nomad.client.host.cpu.total_percent
    nomad.client.host.cpu.user nomad.client.host.cpu.system nomad.client.host.cpu.idle
    nomad.client.host.cpu.total_ticks nomad.client.host.memory.total nomad.client.host.memory.available
    nomad.client.host.memory.used nomad.client.host.memory.free nomad.client.host.disk.size
    nomad.client.host.disk.used nomad.client.host.disk.available nomad.client.host.disk.used_percent
    nomad.client.host.disk.inodes_percent nomad.client.uptime nomad.client.allocs.cpu.allocated
    nomad.client.allocs.cpu.total_percent nomad.client.allocs.cpu.total_ticks nomad.client.allocs.cpu.user
    nomad.client.allocs.cpu.system nomad.client.allocs.cpu.throttled_time nomad.client.allocs.cpu.throttled_periods
    nomad.client.allocs.memory.allocated nomad.client.allocs.memory.max_allocated nomad.client.allocs.memory.rss
    nomad.client.allocs.memory.cache nomad.client.allocs.memory.swap nomad.client.allocs.memory.usage
    nomad.client.allocs.memory.max_usage nomad.client.allocs.memory.kernel_usage
    nomad.client.allocs.memory.kernel_max_usage nomad.client.allocs.running nomad.client.allocs.complete
    nomad.client.allocs.failed nomad.client.allocs.restart nomad.client.allocs.oom_killed
    nomad.runtime.num_goroutines nomad.runtime.alloc_bytes nomad.runtime.heap_objects nomad.runtime.gc_pause_ns
"""
