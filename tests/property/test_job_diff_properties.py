"""Properties of job diffs and canonical form over generated jobs."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lepa.model.job import Job
from lepa.model.job_diff import ObjectDiff, diff_jobs
from lepa.model.job_rules import canonicalise, spec_changed, validate
from lepa.model.wire import from_builtins, to_builtins

WORDS = st.sampled_from(["a", "b", "", "x y"])
MAPS = st.dictionaries(st.sampled_from(["k", "l"]), WORDS, max_size=2)
NAMES = st.sampled_from(["n1", "n2", "n3"])


def _named(fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[list[Any]]:
    """Blocks with names of their own, in order of the names: another order would be no difference."""
    block = st.fixed_dictionaries({"Name": NAMES}, optional=fields)
    blocks = st.lists(block, max_size=2, unique_by=lambda found: found["Name"])
    return blocks.map(lambda found: sorted(found, key=lambda one: one["Name"]))


SERVICES = _named({"Tags": st.lists(WORDS, max_size=2), "PortLabel": WORDS, "Meta": MAPS})
CONFIGS = st.recursive(WORDS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2))
TASKS = _named(
    {
        "Driver": WORDS,
        "Env": MAPS,
        "Config": st.dictionaries(NAMES, CONFIGS, max_size=2),
        "Services": SERVICES,
        "Leader": st.booleans(),
        "KillTimeout": st.integers(-1, 2),
        "Resources": st.fixed_dictionaries({}, optional={"CPU": st.integers(0, 2), "Cores": st.integers(0, 2)}),
        "RestartPolicy": st.fixed_dictionaries({}, optional={"Attempts": st.integers(0, 2)}),
    }
)
GROUPS = _named(
    {
        "Count": st.integers(-1, 3),
        "Meta": MAPS,
        "Tasks": TASKS,
        "Services": SERVICES,
        "Update": st.fixed_dictionaries({}, optional={"Canary": st.integers(0, 1)}),
        "Scaling": st.fixed_dictionaries({}, optional={"Max": st.integers(0, 3), "Min": st.integers(0, 3)}),
        "Volumes": st.dictionaries(NAMES, st.fixed_dictionaries({"Source": WORDS}), max_size=2),
    }
)
RAW_JOBS = st.fixed_dictionaries(
    {"ID": st.just("j"), "TaskGroups": GROUPS},
    optional={
        "Type": st.sampled_from(["service", "batch", "system", "sysbatch", "other"]),
        "Priority": st.integers(0, 101),
        "Meta": MAPS,
        "Datacenters": st.lists(WORDS, max_size=3),
        "Periodic": st.fixed_dictionaries({}, optional={"Specs": st.lists(WORDS, max_size=2)}),
        "Update": st.fixed_dictionaries({}, optional={"MaxParallel": st.integers(0, 2)}),
    },
)
JOBS = RAW_JOBS.map(canonicalise)


@given(JOBS)
def test_canonical_form_is_a_fixed_point(job: Job) -> None:
    assert canonicalise(to_builtins(job)) == job
    assert from_builtins(to_builtins(job), Job) == job


@given(RAW_JOBS)
def test_canonical_form_does_not_depend_on_the_case_of_keys(raw: dict[str, Any]) -> None:
    lower = {key.lower(): value for key, value in raw.items()}
    assert canonicalise(lower) == canonicalise(raw)


@given(JOBS)
def test_any_job_can_be_judged(job: Job) -> None:
    problems = validate(job, existing=job)
    assert all(isinstance(message, str) and message for message in (*problems.errors, *problems.warnings))


@given(JOBS, JOBS)
def test_there_is_a_difference_when_and_only_when_the_spec_changed(old: Job, new: Job) -> None:
    assert (diff_jobs(old, new, False).type != "None") == spec_changed(old, new)


@given(JOBS, JOBS)
def test_the_way_back_swaps_added_and_deleted(old: Job, new: Job) -> None:
    there, back = diff_jobs(old, new, False), diff_jobs(new, old, False)
    assert {(f.name, f.old, f.new) for f in there.fields} == {(f.name, f.new, f.old) for f in back.fields}
    swapped = {"Added": "Deleted", "Deleted": "Added"}
    assert {(g.name, swapped.get(g.type, g.type)) for g in there.task_groups} == {
        (g.name, g.type) for g in back.task_groups
    }


@given(JOBS, JOBS, st.booleans())
def test_a_block_is_edited_when_and_only_when_something_in_it_changed(old: Job, new: Job, contextual: bool) -> None:
    def check(part: ObjectDiff) -> None:
        changed = any(inner.type != "None" for inner in (*part.fields, *part.objects))
        assert part.type in ("Added", "Deleted") or (part.type == "Edited") == changed
        for inner in part.objects:
            check(inner)

    diff = diff_jobs(old, new, contextual)
    for part in diff.objects:
        check(part)
    for group in diff.task_groups:
        for part in (*group.objects, *(inner for task in group.tasks for inner in task.objects)):
            check(part)
