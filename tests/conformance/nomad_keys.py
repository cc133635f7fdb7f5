"""The JSON keys of Nomad's answers, type by type, and where one type holds another.

Written down as facts from the reference of Nomad's API; nothing is derived from lepa's own types, which these
tables check. `misfits` compares a decoded answer with them, as deep as `HOLDS` goes.
"""

from collections.abc import Iterator
from typing import Any

KEYS = {
    name: frozenset(text.split())
    for name, text in {
        "Job": """
        Region Namespace ID Name Type Priority AllAtOnce Datacenters NodePool Constraints Affinities
        TaskGroups Update Multiregion Spreads Periodic ParameterizedJob Meta UI Stop
        ParentID Dispatched DispatchIdempotencyToken Payload ConsulNamespace VaultNamespace NomadTokenID
        Status StatusDescription Stable Version SubmitTime CreateIndex ModifyIndex JobModifyIndex
        VersionTag
    """,
        "JobUIConfig": """
        Description Links
    """,
        "JobUILink": """
        Label URL
    """,
        "JobVersionTag": """
        Name Description TaggedTime
    """,
        "TaskGroup": """
        Name Count Constraints Affinities Tasks Spreads Volumes RestartPolicy Disconnect
        ReschedulePolicy EphemeralDisk Update Migrate Networks Meta Services ShutdownDelay
        MaxRunDuration StopAfterClientDisconnect MaxClientDisconnect Scaling Consul
        PreventRescheduleOnLost
    """,
        "EphemeralDisk": """
        Sticky Migrate SizeMB
    """,
        "VolumeRequest": """
        Name Type Source ReadOnly Sticky AccessMode AttachmentMode MountOptions PerAlloc
    """,
        "Task": """
        Name Driver User Lifecycle Config Constraints Affinities Env Services Resources RestartPolicy
        Meta KillTimeout LogConfig Artifacts Vault Consul Templates DispatchPayload VolumeMounts
        CSIPluginConfig Leader ShutdownDelay KillSignal Kind ScalingPolicies Secrets Identity Identities
        Actions Schedule
    """,
        "TaskLifecycle": """
        Hook Sidecar
    """,
        "LogConfig": """
        MaxFiles MaxFileSizeMB Enabled Disabled
    """,
        "TaskArtifact": """
        GetterSource GetterOptions GetterHeaders GetterMode GetterInsecure RelativeDest Chown
    """,
        "DispatchPayloadConfig": """
        File
    """,
        "Resources": """
        CPU Cores MemoryMB MemoryMaxMB DiskMB Networks Devices NUMA SecretsMB IOPS
    """,
        "NetworkResource": """
        Mode Device CIDR IP DNS ReservedPorts DynamicPorts Hostname MBits CNI
    """,
        "Port": """
        Label Value To HostNetwork IgnoreCollision
    """,
        "DNSConfig": """
        Servers Searches Options
    """,
        "Service": """
        Name Tags CanaryTags EnableTagOverride PortLabel AddressMode Address Checks CheckRestart Connect
        Meta CanaryMeta TaggedAddresses TaskName OnUpdate Identity Weights Provider Cluster Kind
    """,
        "ServiceWeights": """
        Passing Warning
    """,
        "ServiceCheck": """
        Name Type Command Args Path Protocol PortLabel Expose AddressMode Advertise Interval Timeout
        InitialStatus Notes TLSServerName TLSSkipVerify Header Method CheckRestart GRPCService
        GRPCUseTLS TaskName SuccessBeforePassing FailuresBeforeCritical FailuresBeforeWarning Body
        OnUpdate
    """,
        "CheckRestart": """
        Limit Grace IgnoreWarnings
    """,
        "Template": """
        SourcePath DestPath EmbeddedTmpl ChangeMode ChangeScript ChangeSignal Once Splay Perms Uid Gid
        LeftDelim RightDelim Envvars VaultGrace Wait ErrMissingKey
    """,
        "WorkloadIdentity": """
        Name Audience ChangeMode ChangeSignal Env File Filepath ServiceName TTL ExtraClaims
    """,
        "Constraint": """
        LTarget RTarget Operand
    """,
        "Affinity": """
        LTarget RTarget Operand Weight
    """,
        "Spread": """
        Attribute Weight SpreadTarget
    """,
        "SpreadTarget": """
        Value Percent
    """,
        "UpdateStrategy": """
        Stagger MaxParallel HealthCheck MinHealthyTime HealthyDeadline ProgressDeadline Canary
        AutoRevert AutoPromote
    """,
        "RestartPolicy": """
        Interval Attempts Delay Mode RenderTemplates
    """,
        "ReschedulePolicy": """
        Attempts Interval Delay DelayFunction MaxDelay Unlimited
    """,
        "MigrateStrategy": """
        MaxParallel HealthCheck MinHealthyTime HealthyDeadline
    """,
        "DisconnectStrategy": """
        LostAfter StopOnClientAfter Replace Reconcile
    """,
        "ScalingPolicy": """
        Min Max Policy Enabled Type ID Namespace Target CreateIndex ModifyIndex
    """,
        "PeriodicConfig": """
        Enabled Spec Specs SpecType ProhibitOverlap TimeZone
    """,
        "ParameterizedJobConfig": """
        Payload MetaRequired MetaOptional
    """,
        "Allocation": """
        ID Namespace EvalID Name NodeID NodeName JobID Job TaskGroup Resources SharedResources
        TaskResources AllocatedResources Metrics DesiredStatus DesiredDescription DesiredTransition
        ClientStatus ClientDescription TaskStates AllocStates PreviousAllocation NextAllocation
        DeploymentID DeploymentStatus RescheduleTracker NetworkStatus FollowupEvalID
        PreemptedAllocations PreemptedByAllocation SigningKeyID CreateIndex ModifyIndex AllocModifyIndex
        CreateTime ModifyTime
    """,
        "AllocListStub": """
        ID EvalID Name Namespace NodeID NodeName JobID JobType JobVersion TaskGroup AllocatedResources
        DesiredStatus DesiredDescription ClientStatus ClientDescription DesiredTransition TaskStates
        DeploymentStatus FollowupEvalID NextAllocation RescheduleTracker PreemptedAllocations
        PreemptedByAllocation CreateIndex ModifyIndex CreateTime ModifyTime
    """,
        "AllocatedResources": """
        Tasks TaskLifecycles Shared
    """,
        "AllocatedTaskResources": """
        Cpu Memory Networks Devices
    """,
        "AllocatedCpuResources": """
        CpuShares ReservedCores
    """,
        "AllocatedMemoryResources": """
        MemoryMB MemoryMaxMB
    """,
        "AllocatedSharedResources": """
        Networks DiskMB Ports
    """,
        "AllocatedPortMapping": """
        Label Value To HostIP IgnoreCollision
    """,
        "TaskState": """
        State Failed Restarts LastRestart StartedAt FinishedAt Events Paused
    """,
        "TaskEvent": """
        Type Time Message DisplayMessage Details FailsTask RestartReason SetupError DriverError ExitCode
        Signal KillTimeout KillError KillReason StartDelay DownloadError ValidationError DiskLimit
        FailedSibling VaultError TaskSignalReason TaskSignal DriverMessage GenericSource
    """,
        "DesiredTransition": """
        Migrate Reschedule ForceReschedule NoShutdownDelay MigrateDisablePlacement
    """,
        "AllocDeploymentStatus": """
        Healthy Timestamp Canary ModifyIndex
    """,
        "AllocNetworkStatus": """
        InterfaceName Address AddressIPv6 DNS
    """,
        "AllocMetric": """
        NodesEvaluated NodesFiltered NodesInPool NodePool NodesAvailable ClassFiltered
        ConstraintFiltered NodesExhausted ClassExhausted DimensionExhausted QuotaExhausted
        ResourcesExhausted Scores ScoreMetaData AllocationTime CoalescedFailures
    """,
        "NodeScoreMeta": """
        NodeID Scores NormScore
    """,
        "Evaluation": """
        ID Namespace Priority Type TriggeredBy JobID JobModifyIndex NodeID NodeModifyIndex DeploymentID
        Status StatusDescription Wait WaitUntil NextEval PreviousEval BlockedEval RelatedEvals
        FailedTGAllocs PlanAnnotations ClassEligibility QuotaLimitReached MissingNonNodeResources
        EscapedComputedClass AnnotatePlan QueuedAllocations LeaderACL SnapshotIndex CreateIndex
        ModifyIndex CreateTime ModifyTime
    """,
        "EvaluationStub": """
        ID Namespace Priority Type TriggeredBy JobID NodeID DeploymentID Status StatusDescription
        WaitUntil NextEval PreviousEval BlockedEval CreateIndex ModifyIndex CreateTime ModifyTime
    """,
        "Deployment": """
        ID Namespace JobID JobVersion JobModifyIndex JobSpecModifyIndex JobCreateIndex IsMultiregion
        TaskGroups Status StatusDescription EvalPriority CreateIndex ModifyIndex CreateTime ModifyTime
    """,
        "DeploymentState": """
        AutoRevert AutoPromote ProgressDeadline RequireProgressBy Promoted PlacedCanaries
        DesiredCanaries DesiredTotal PlacedAllocs HealthyAllocs UnhealthyAllocs
    """,
        "Node": """
        ID SecretID Datacenter Name CgroupParent HTTPAddr TLSEnabled Attributes NodeResources
        ReservedResources Links Meta NodeClass NodePool ComputedClass DrainStrategy
        SchedulingEligibility Status StatusDescription IdentitySigningKeyID StatusUpdatedAt Events
        Drivers CSIControllerPlugins CSINodePlugins HostVolumes GCVolumesOnNodeGC HostNetworks LastDrain
        NodeMaxAllocs LastMissedHeartbeatIndex LastAllocUpdateIndex CreateIndex ModifyIndex
    """,
        "NodeListStub": """
        Address ID Attributes Datacenter Name NodePool NodeClass Version Drain SchedulingEligibility
        Status StatusDescription Drivers HostVolumes NodeResources ReservedResources LastDrain
        CreateIndex ModifyIndex
    """,
        "NodeResources": """
        Cpu Processors Memory Disk Devices NodeNetworks Networks MinDynamicPort MaxDynamicPort
    """,
        "LegacyNodeCpuResources": """
        CpuShares TotalCpuCores ReservableCpuCores
    """,
        "NodeProcessorResources": """
        Topology
    """,
        "NodeMemoryResources": """
        MemoryMB
    """,
        "NodeDiskResources": """
        DiskMB
    """,
        "NodeNetworkResource": """
        Mode Device MacAddress Speed Addresses
    """,
        "NodeNetworkAddress": """
        Family Alias Address ReservedPorts Gateway
    """,
        "NodeReservedResources": """
        Cpu Memory Disk Networks
    """,
        "DriverInfo": """
        Attributes Detected Healthy HealthDescription UpdateTime
    """,
        "NodeEvent": """
        Message Subsystem Details Timestamp CreateIndex
    """,
        "DrainStrategy": """
        Deadline IgnoreSystemJobs ForceDeadline StartedAt
    """,
        "DrainMetadata": """
        StartedAt UpdatedAt Status AccessorID Meta
    """,
        "NodePool": """
        Name Description Meta SchedulerConfiguration NodeIdentityTTL Hash CreateIndex ModifyIndex
    """,
        "JobListStub": """
        ID ParentID Name Namespace Datacenters NodePool Multiregion Type Priority Periodic
        ParameterizedJob Stop Status StatusDescription JobSummary CreateIndex ModifyIndex JobModifyIndex
        SubmitTime Meta
    """,
        "JobSummary": """
        JobID Namespace Summary Children CreateIndex ModifyIndex
    """,
        "TaskGroupSummary": """
        Queued Complete Failed Running Starting Lost Unknown
    """,
        "JobChildrenSummary": """
        Pending Running Dead
    """,
        "JobStatusesJob": """
        ID Namespace Name Type NodePool Datacenters Priority Version SubmitTime ModifyIndex Allocs GroupCountSum
        ChildStatuses ParentID LatestDeployment Stop IsPack Status
    """,
        "JobStatusesAlloc": """
        ID Group ClientStatus NodeID DeploymentStatus JobVersion FollowupEvalID HasPausedTask
    """,
        "JobStatusesLatestDeployment": """
        ID IsActive JobVersion Status StatusDescription AllAutoPromote RequiresPromotion
    """,
        "JobSubmission": """
        Source Format VariableFlags Variables Namespace JobID Version JobModifyIndex
    """,
        "JobScaleStatus": """
        JobID Namespace JobCreateIndex JobModifyIndex JobStopped TaskGroups
    """,
        "TaskGroupScaleStatus": """
        Desired Placed Running Healthy Unhealthy Events
    """,
        "ScalingEvent": """
        Time Count PreviousCount Message Error Meta EvalID CreateIndex
    """,
        "ScalingPolicyListStub": """
        ID Enabled Type Target CreateIndex ModifyIndex
    """,
        "AllocResourceUsage": """
        ResourceUsage Tasks Timestamp
    """,
        "TaskResourceUsage": """
        ResourceUsage Timestamp Pids
    """,
        "ResourceUsage": """
        MemoryStats CpuStats DeviceStats
    """,
        "TaskCpuStats": """
        SystemMode UserMode TotalTicks ThrottledPeriods ThrottledTime Percent Measured
    """,
        "HostStats": """
        Memory CPU DiskStats AllocDirStats DeviceStats Uptime Timestamp CPUTicksConsumed
    """,
        "HostCpuStats": """
        CPU User System Idle TotalPercent TotalTicks
    """,
        "DiskStats": """
        Device Mountpoint Size Used Available UsedPercent InodesUsedPercent
    """,
        "CheckQueryResult": """
        ID Mode Status StatusCode Output Timestamp Group Task Service Check
    """,
        "AllocFileInfo": """
        Name IsDir Size FileMode ModTime ContentType
    """,
        "ServiceRegistration": """
        ID ServiceName Namespace NodeID Datacenter JobID AllocID Tags Address Port CreateIndex
        ModifyIndex
    """,
        "Namespace": """
        Name Description Quota Capabilities NodePoolConfiguration VaultConfiguration ConsulConfiguration
        Meta Hash CreateIndex ModifyIndex RequiredExtraClaims OptionalExtraClaims
    """,
        "NamespaceCapabilities": """
        EnabledTaskDrivers DisabledTaskDrivers EnabledNetworkModes DisabledNetworkModes
    """,
        "NamespaceNodePoolConfiguration": """
        Default Allowed Denied
    """,
        # What writes answer
        "JobRegisterResponse": """
        EvalID EvalCreateIndex JobModifyIndex Warnings Index LastContact KnownLeader NextToken
    """,
        "JobDeregisterResponse": """
        EvalID EvalCreateIndex JobModifyIndex VolumeEvalID VolumeEvalIndex Index
    """,
        "JobPlanResponse": """
        Annotations FailedTGAllocs JobModifyIndex CreatedEvals Diff NextPeriodicLaunch Warnings Index
    """,
        "PlanAnnotations": "DesiredTGUpdates PreemptedAllocs",
        "DesiredUpdates": """
        Ignore Place Migrate Stop InPlaceUpdate DestructiveUpdate Canary Preemptions Disconnect Reconnect
        RescheduleNow RescheduleLater
    """,
        "JobDiff": "Type ID Fields Objects TaskGroups",
        "TaskGroupDiff": "Type Name Fields Objects Tasks Updates",
        "TaskDiff": "Type Name Fields Objects Annotations",
        "ObjectDiff": "Type Name Fields Objects",
        "FieldDiff": "Type Name Old New Annotations",
        "JobValidateResponse": "DriverConfigValidated ValidationErrors Error Warnings",
        "JobVersions": "Versions Diffs",
        "JobDispatchResponse": "DispatchedJobID EvalID EvalCreateIndex JobCreateIndex Index",
        "PeriodicForceResponse": "EvalID EvalCreateIndex Index",
        "IndexResponse": "Index",
        "AllocStopResponse": "EvalID Index",
        "EvaluationCount": "Count Index",
        "DeploymentUpdateResponse": "EvalID EvalCreateIndex DeploymentModifyIndex RevertedJobVersion Index",
        "NodeUpdateResponse": """
        HeartbeatTTL EvalIDs EvalCreateIndex NodeModifyIndex LeaderRPCAddr NumNodes Servers
        SchedulingEligibility Index
    """,
        "NodeDrainResponse": "NodeModifyIndex EvalIDs EvalCreateIndex Index",
        "ClientMetadata": "Meta Dynamic Static",
        "JobAction": "Name Command Args TaskName TaskGroupName JobID",
        # Cluster and agent
        "NamespaceServices": "Namespace Services",
        "ServiceStub": "ServiceName Tags",
        "SearchResponse": "Matches Truncations Index",
        "FuzzyMatch": "ID Scope",
        "SchedulerConfigurationResponse": "SchedulerConfig Index LastContact KnownLeader",
        "SchedulerConfiguration": """
        SchedulerAlgorithm PreemptionConfig MemoryOversubscriptionEnabled RejectJobRegistration
        PauseEvalBroker NodeLimitForFeasibilityChecks CreateIndex ModifyIndex
    """,
        "PreemptionConfig": """
        SystemSchedulerEnabled SysBatchSchedulerEnabled BatchSchedulerEnabled ServiceSchedulerEnabled
    """,
        "SchedulerConfigurationWritten": "Updated Index",
        "RaftConfiguration": "Servers Index",
        "UpgradeCheck": "JobsWithoutVaultIdentity OutdatedNodes VaultTokens",
        "CSIPluginListStub": "ID Provider ControllerRequired ControllersHealthy ControllersExpected NodesHealthy",
        "JobTagResponse": "Name Description TaggedTime Index",
        "Schedulers": "server_id schedulers",
        "SchedulersConfig": "server_id num_schedulers enabled_schedulers",
        "RaftServer": "ID Node Address Leader Voter RaftProtocol",
        "AgentSelf": "config member stats",
        "Members": "ServerName ServerRegion ServerDC Members",
        "Member": """
        Name Addr Port Tags Status ProtocolMin ProtocolMax ProtocolCur DelegateMin DelegateMax DelegateCur
    """,
        "AgentHealth": "client server",
        "PartHealth": "ok message",
        "AgentHost": "AgentID HostData",
        "JoinResponse": "num_joined error warning",
        "Metrics": "Timestamp Gauges Points Counters Samples",
        "Gauge": "Name Value Labels",
        "Sample": "Name Count Rate Sum Min Max Mean Stddev Labels",
        "MemoryStats": "RSS Cache Swap MappedFile Usage MaxUsage KernelUsage KernelMaxUsage Measured",
        "HostMemoryStats": "Total Available Used Free",
    }.items()
}
"""Every key of each type."""

OMIT_EMPTY = {
    "Allocation": frozenset({"ID", "JobID", "ClientStatus", "DesiredStatus", "TaskStates", "Job", "NodeID"}),
    "Evaluation": frozenset({"ID", "JobID", "Status", "Type", "TriggeredBy"}),
    "EvaluationStub": frozenset({"ID", "JobID", "Status"}),
    "NetworkResource": frozenset(),
    "Port": frozenset({"Label"}),
    "AllocatedPortMapping": frozenset({"Label", "Value"}),
}
"""Types whose empty fields are left out, and the keys that are there in practice."""

OPTIONAL = {
    "AllocListStub": {"AllocatedResources"},
    "NodeListStub": {"Attributes", "NodeResources", "ReservedResources"},
    "JobListStub": {"Meta"},
    "CheckQueryResult": {"StatusCode", "Task"},
    "AllocFileInfo": {"ContentType"},
    "AgentHealth": {"client", "server"},
    "Node": {"GCVolumesOnNodeGC", "IdentitySigningKeyID"},
    "Evaluation": {"RelatedEvals"},
}
"""Keys of other types that are left out when they are empty."""

EXTRA = {
    "Allocation": {"JobVersion"},
    "Node": {"Drain"},
    "Job": {"After"},
    "PeriodicConfig": {"MaxRunning"},
    "ParameterizedJobConfig": {"MaxRunning"},
    "ServiceRegistration": {"Status", "Weight", "WarningWeight", "Meta", "Checks", "NodeName", "NodeAddress", "Agent"},
    "JobDeregisterResponse": {"LastContact", "KnownLeader", "NextToken", "Warnings"},
}
"""Keys beyond Nomad's tables: the first two are Nomad's own in some answers, the rest are lepa's."""

HOLDS = {
    ("Job", "TaskGroups"): "[]TaskGroup",
    ("Job", "Constraints"): "[]Constraint",
    ("Job", "Affinities"): "[]Affinity",
    ("Job", "Spreads"): "[]Spread",
    ("Job", "Update"): "UpdateStrategy",
    ("Job", "Periodic"): "PeriodicConfig",
    ("Job", "ParameterizedJob"): "ParameterizedJobConfig",
    ("Job", "UI"): "JobUIConfig",
    ("Job", "VersionTag"): "JobVersionTag",
    ("JobUIConfig", "Links"): "[]JobUILink",
    ("Spread", "SpreadTarget"): "[]SpreadTarget",
    ("TaskGroup", "Tasks"): "[]Task",
    ("TaskGroup", "Constraints"): "[]Constraint",
    ("TaskGroup", "Affinities"): "[]Affinity",
    ("TaskGroup", "Spreads"): "[]Spread",
    ("TaskGroup", "Volumes"): "{}VolumeRequest",
    ("TaskGroup", "RestartPolicy"): "RestartPolicy",
    ("TaskGroup", "ReschedulePolicy"): "ReschedulePolicy",
    ("TaskGroup", "Disconnect"): "DisconnectStrategy",
    ("TaskGroup", "EphemeralDisk"): "EphemeralDisk",
    ("TaskGroup", "Update"): "UpdateStrategy",
    ("TaskGroup", "Migrate"): "MigrateStrategy",
    ("TaskGroup", "Networks"): "[]NetworkResource",
    ("TaskGroup", "Services"): "[]Service",
    ("TaskGroup", "Scaling"): "ScalingPolicy",
    ("Task", "Lifecycle"): "TaskLifecycle",
    ("Task", "Constraints"): "[]Constraint",
    ("Task", "Services"): "[]Service",
    ("Task", "Resources"): "Resources",
    ("Task", "RestartPolicy"): "RestartPolicy",
    ("Task", "LogConfig"): "LogConfig",
    ("Task", "Artifacts"): "[]TaskArtifact",
    ("Task", "Templates"): "[]Template",
    ("Task", "DispatchPayload"): "DispatchPayloadConfig",
    ("Task", "Identity"): "WorkloadIdentity",
    ("Resources", "Networks"): "[]NetworkResource",
    ("NetworkResource", "DynamicPorts"): "[]Port",
    ("NetworkResource", "ReservedPorts"): "[]Port",
    ("NetworkResource", "DNS"): "DNSConfig",
    ("Service", "Checks"): "[]ServiceCheck",
    ("Service", "CheckRestart"): "CheckRestart",
    ("Service", "Weights"): "ServiceWeights",
    ("Allocation", "Job"): "Job",
    ("Allocation", "AllocatedResources"): "AllocatedResources",
    ("Allocation", "Metrics"): "AllocMetric",
    ("Allocation", "DesiredTransition"): "DesiredTransition",
    ("Allocation", "TaskStates"): "{}TaskState",
    ("Allocation", "DeploymentStatus"): "AllocDeploymentStatus",
    ("Allocation", "NetworkStatus"): "AllocNetworkStatus",
    ("AllocListStub", "AllocatedResources"): "AllocatedResources",
    ("AllocListStub", "DesiredTransition"): "DesiredTransition",
    ("AllocListStub", "TaskStates"): "{}TaskState",
    ("AllocListStub", "DeploymentStatus"): "AllocDeploymentStatus",
    ("AllocatedResources", "Tasks"): "{}AllocatedTaskResources",
    ("AllocatedResources", "TaskLifecycles"): "{}TaskLifecycle",
    ("AllocatedResources", "Shared"): "AllocatedSharedResources",
    ("AllocatedTaskResources", "Cpu"): "AllocatedCpuResources",
    ("AllocatedTaskResources", "Memory"): "AllocatedMemoryResources",
    ("AllocatedTaskResources", "Networks"): "[]NetworkResource",
    ("AllocatedSharedResources", "Networks"): "[]NetworkResource",
    ("AllocatedSharedResources", "Ports"): "[]AllocatedPortMapping",
    ("TaskState", "Events"): "[]TaskEvent",
    ("AllocMetric", "ScoreMetaData"): "[]NodeScoreMeta",
    ("Evaluation", "FailedTGAllocs"): "{}AllocMetric",
    ("Evaluation", "RelatedEvals"): "[]EvaluationStub",
    ("Deployment", "TaskGroups"): "{}DeploymentState",
    ("Node", "NodeResources"): "NodeResources",
    ("Node", "ReservedResources"): "NodeReservedResources",
    ("Node", "DrainStrategy"): "DrainStrategy",
    ("Node", "LastDrain"): "DrainMetadata",
    ("Node", "Events"): "[]NodeEvent",
    ("Node", "Drivers"): "{}DriverInfo",
    ("NodeListStub", "Drivers"): "{}DriverInfo",
    ("NodeListStub", "NodeResources"): "NodeResources",
    ("NodeListStub", "LastDrain"): "DrainMetadata",
    ("NodeResources", "Cpu"): "LegacyNodeCpuResources",
    ("NodeResources", "Processors"): "NodeProcessorResources",
    ("NodeResources", "Memory"): "NodeMemoryResources",
    ("NodeResources", "Disk"): "NodeDiskResources",
    ("NodeResources", "NodeNetworks"): "[]NodeNetworkResource",
    ("NodeNetworkResource", "Addresses"): "[]NodeNetworkAddress",
    ("JobListStub", "JobSummary"): "JobSummary",
    ("JobSummary", "Summary"): "{}TaskGroupSummary",
    ("JobSummary", "Children"): "JobChildrenSummary",
    ("JobStatusesJob", "Allocs"): "[]JobStatusesAlloc",
    ("JobStatusesJob", "LatestDeployment"): "JobStatusesLatestDeployment",
    ("JobVersions", "Versions"): "[]Job",
    ("JobVersions", "Diffs"): "[]JobDiff",
    ("JobScaleStatus", "TaskGroups"): "{}TaskGroupScaleStatus",
    ("TaskGroupScaleStatus", "Events"): "[]ScalingEvent",
    ("JobPlanResponse", "Annotations"): "PlanAnnotations",
    ("JobPlanResponse", "Diff"): "JobDiff",
    ("PlanAnnotations", "DesiredTGUpdates"): "{}DesiredUpdates",
    ("JobDiff", "TaskGroups"): "[]TaskGroupDiff",
    ("JobDiff", "Fields"): "[]FieldDiff",
    ("JobDiff", "Objects"): "[]ObjectDiff",
    ("TaskGroupDiff", "Tasks"): "[]TaskDiff",
    ("TaskGroupDiff", "Fields"): "[]FieldDiff",
    ("TaskGroupDiff", "Objects"): "[]ObjectDiff",
    ("TaskDiff", "Fields"): "[]FieldDiff",
    ("TaskDiff", "Objects"): "[]ObjectDiff",
    ("ObjectDiff", "Fields"): "[]FieldDiff",
    ("ObjectDiff", "Objects"): "[]ObjectDiff",
    ("AllocResourceUsage", "ResourceUsage"): "ResourceUsage",
    ("AllocResourceUsage", "Tasks"): "{}TaskResourceUsage",
    ("TaskResourceUsage", "ResourceUsage"): "ResourceUsage",
    ("ResourceUsage", "MemoryStats"): "MemoryStats",
    ("ResourceUsage", "CpuStats"): "TaskCpuStats",
    ("HostStats", "Memory"): "HostMemoryStats",
    ("HostStats", "CPU"): "[]HostCpuStats",
    ("HostStats", "DiskStats"): "[]DiskStats",
    ("HostStats", "AllocDirStats"): "DiskStats",
    ("Namespace", "Capabilities"): "NamespaceCapabilities",
    ("Namespace", "NodePoolConfiguration"): "NamespaceNodePoolConfiguration",
    ("NamespaceServices", "Services"): "[]ServiceStub",
    ("SchedulerConfigurationResponse", "SchedulerConfig"): "SchedulerConfiguration",
    ("SchedulerConfiguration", "PreemptionConfig"): "PreemptionConfig",
    ("RaftConfiguration", "Servers"): "[]RaftServer",
    ("AgentSelf", "member"): "Member",
    ("Members", "Members"): "[]Member",
    ("AgentHealth", "client"): "PartHealth",
    ("AgentHealth", "server"): "PartHealth",
    ("Metrics", "Gauges"): "[]Gauge",
    ("Metrics", "Counters"): "[]Sample",
    ("Metrics", "Samples"): "[]Sample",
}
"""Which type a key of a type holds: `T`, `[]T` for a list, `{}T` for a map of names."""


def misfits(value: Any, kind: str, place: str = "$") -> Iterator[str]:
    """Keys that are missing from an answer of a kind, or that Nomad does not have, each with its place."""
    if kind.startswith("[]"):
        if not isinstance(value, list):
            yield f"{place}: a list was expected"
            return
        for number, item in enumerate(value):
            yield from misfits(item, kind[2:], f"{place}[{number}]")
    elif kind.startswith("{}"):
        if not isinstance(value, dict):
            yield f"{place}: a map was expected"
            return
        for name, item in value.items():
            if item is not None:
                yield from misfits(item, kind[2:], f"{place}.{name}")
    elif not isinstance(value, dict):
        yield f"{place}: an object was expected"
    else:
        yield from _misfits_of_object(value, kind, place)


def _misfits_of_object(value: dict[str, Any], kind: str, place: str) -> Iterator[str]:
    needed = OMIT_EMPTY[kind] if kind in OMIT_EMPTY else KEYS[kind] - OPTIONAL.get(kind, set())
    known = KEYS[kind] | EXTRA.get(kind, set())
    yield from (f"{place}.{key} ({kind}) is missing" for key in sorted(needed - value.keys()))
    yield from (f"{place}.{key} ({kind}) is unknown" for key in sorted(value.keys() - known))
    for key, item in value.items():
        held = HOLDS.get((kind, key))
        if held is not None and item is not None:
            yield from misfits(item, held, f"{place}.{key}")
