"""Differences as a tree."""

from lepa.cli.output import bare
from lepa.cli.plan_view import changes_allocations, diff_lines
from lepa.model.job import Job, TaskGroup
from lepa.model.job_diff import diff_jobs
from lepa.model.resources import Resources
from lepa.model.task import Task
from lepa.model.wire import to_builtins


def job(count: int = 1, memory_mb: int = 64, **meta: str) -> Job:
    task = Task(name="server", driver="raw_exec", resources=Resources(cpu=100, memory_mb=memory_mb))
    return Job(id="web", name="web", task_groups=(TaskGroup(name="page", count=count, tasks=(task,)),), meta=dict(meta))


def shown(old: Job | None, new: Job | None, verbose: bool = False) -> list[str]:
    diff = to_builtins(diff_jobs(old, new, contextual=True))
    return [bare(line) for line in diff_lines(diff, verbose)]


def test_a_new_job_is_shown_without_everything_that_is_in_it() -> None:
    assert shown(None, job()) == ['+ Job: "web"', '+ Task Group: "page"', '  + Task: "server"']
    assert any("Count" in line for line in shown(None, job(), verbose=True))


def test_a_stopped_job_is_all_minus() -> None:
    assert {line.lstrip()[0] for line in shown(job(), None)} == {"-"}


def test_changes_are_shown_with_what_is_the_same_beside_them() -> None:
    lines = shown(job(), job(count=3, memory_mb=80))
    assert lines[:4] == [
        '+/- Job: "web"',
        '+/- Task Group: "page"',
        '  +/- Count: "1" => "3"',
        '  +/- Task: "server"',
    ]
    assert lines[4] == "    +/- Resources {"
    assert '      +/- MemoryMB:    "64" => "80"' in lines
    assert '          CPU:         "100"' in lines
    assert lines[-1] == "        }"


def test_nothing_is_marked_when_nothing_changes() -> None:
    assert shown(job(), job()) == ['Job: "web"', 'Task Group: "page"', '  Task: "server"']


def test_added_and_removed_fields_have_their_own_marks() -> None:
    lines = shown(job(a="1"), job(b="2"))
    assert any(
        line.strip().startswith('- Meta[a]: "1"') or line.strip().startswith('-   Meta[a]: "1"') for line in lines
    )
    assert any('Meta[b]: "2"' in line and line.strip().startswith("+") for line in lines)


def test_groups_tell_what_happens_to_their_allocations() -> None:
    diff = to_builtins(diff_jobs(job(), job(count=3), contextual=True))
    diff["TaskGroups"][0]["Updates"] = {"create": 2, "ignore": 1, "migrate": 0}
    diff["TaskGroups"][0]["Tasks"][0]["Annotations"] = ["forces create"]
    lines = [bare(line) for line in diff_lines(diff)]
    assert '+/- Task Group: "page" (2 create, 1 ignore)' in lines
    assert '      Task: "server" (forces create)' in lines


def test_only_creating_and_destroying_counts_as_a_change() -> None:
    def answer(**updates: int) -> dict[str, object]:
        return {"Annotations": {"DesiredTGUpdates": {"page": updates}}}

    assert not changes_allocations(answer(Ignore=3, InPlaceUpdate=1))
    assert changes_allocations(answer(Ignore=3, Place=1))
    assert not changes_allocations({"Annotations": None})
