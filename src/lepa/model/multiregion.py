"""Pure: one job over several regions: the copy that each region gets, and what a region does next.

Regions share no state: each has its own copy, its own versions and its own deployment, and looks at those of others.
A deployment of such a job goes through more statuses than others:

    pending ------> running ------> blocked ------> successful
       |  its turn     |   healthy     |  all others are done, or a person unblocks it
       +---------------+---------------+----------> failed: by itself, or because another region failed

Whose turn it is: the regions in order, at most `max_parallel` at once, and none before all have accepted the job. When
a region fails, so do those that come after it (`on_failure` ""), all of them ("fail_all") or no other ("fail_local");
those that are done stay blocked then until a person decides.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Literal

from msgspec.structs import replace

from lepa.model.job import Job
from lepa.model.job_rules import spec_changed
from lepa.model.policies import MultiregionRegion, MultiregionStrategy

Act = Literal["start", "fail", "succeed", ""]

UNKNOWN: Final = ""
"""The status of a region that has not accepted this version of the job, or does not answer."""
NONE: Final = "none"
"""The status of a region that has accepted it and needs no deployment for it."""
GOING_ON: Final = frozenset({"initializing", "pending", "running", "paused", "blocked", "unblocking"})
RUNNING: Final = frozenset({"initializing", "running", "paused"})
DONE: Final = frozenset({"blocked", "unblocking", "successful", NONE})


def region_names(job: Job) -> tuple[str, ...]:
    """The regions of a job in their order; none for a job of one region."""
    return tuple(region.name for region in job.multiregion.regions) if job.multiregion else ()


def in_region(job: Job, region: MultiregionRegion) -> Job:
    """The copy that a region gets. Its count counts for groups that ask for none themselves."""
    groups = tuple(replace(group, count=region.count) if group.count == 0 else group for group in job.task_groups)
    return replace(
        job,
        region=region.name,
        datacenters=region.datacenters or job.datacenters,
        node_pool=region.node_pool or job.node_pool,
        meta=job.meta | region.meta,
        task_groups=groups,
    )


def copies(job: Job) -> dict[str, Job]:
    """The copies of all regions, by name."""
    return {region.name: in_region(job, region) for region in job.multiregion.regions} if job.multiregion else {}


def same_roll_out(one: Job, other: Job) -> bool:
    """Whether two regions' copies were made of the same job: they differ in nothing but what regions may override."""
    return not spec_changed(_bare(one), _bare(other))


def _bare(job: Job) -> Job:
    groups = tuple(replace(group, count=0) for group in job.task_groups)
    return replace(job, region="", datacenters=(), node_pool="", meta={}, task_groups=groups)


def next_act(job: Job, own: str, status: str, others: Mapping[str, str]) -> Act:
    """What a region's deployment does next. status: its own. others: by region, UNKNOWN where nobody knows."""
    if status not in GOING_ON or own not in region_names(job):
        return ""
    names = region_names(job)
    strategy = job.multiregion.strategy if job.multiregion else None
    strategy = strategy or MultiregionStrategy()
    earlier = names[: names.index(own)]
    peers = {name: others.get(name, UNKNOWN) for name in names if name != own}
    if _falls_with(strategy, earlier, peers):
        return "fail"
    if status == "pending" and _has_its_turn(strategy, earlier, peers):
        return "start"
    if status == "blocked" and all(peer in DONE for peer in peers.values()):
        return "succeed"
    return ""


def _falls_with(strategy: MultiregionStrategy, earlier: Iterable[str], peers: Mapping[str, str]) -> bool:
    failed = {name for name, peer in peers.items() if peer == "failed"}
    if strategy.on_failure == "fail_all":
        return bool(failed)
    return strategy.on_failure == "" and not failed.isdisjoint(earlier)


def _has_its_turn(strategy: MultiregionStrategy, earlier: Iterable[str], peers: Mapping[str, str]) -> bool:
    if UNKNOWN in peers.values():
        return False
    ahead = sum(peers[name] == "pending" for name in earlier) + sum(peer in RUNNING for peer in peers.values())
    return strategy.max_parallel <= 0 or ahead < strategy.max_parallel
