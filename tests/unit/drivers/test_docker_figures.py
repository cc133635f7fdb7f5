from lepa.drivers.docker_figures import cpu_time, exit_result, killed, memory_use, moment


def test_an_end_by_a_signal_or_for_lack_of_memory() -> None:
    ended = exit_result({"ExitCode": 137, "OOMKilled": True, "FinishedAt": "2024-01-01T00:00:00Z", "Error": ""})
    assert (ended.exit_code, ended.signal, ended.oom_killed) == (137, 9, True)
    assert ended.finished_at > 0
    assert exit_result({"ExitCode": 3}).signal == 0
    assert killed(5).finished_at == 5


def test_never_is_no_moment() -> None:
    assert moment("0001-01-01T00:00:00Z") == moment("") == 0


def test_figures_of_both_cgroup_versions() -> None:
    raw = {"cpu_stats": {"cpu_usage": {"total_usage": 10, "usage_in_kernelmode": 4}}}
    assert cpu_time(raw, 7)[:3] == (6, 4, 7)
    assert memory_use({"memory_stats": {"usage": 9, "stats": {"anon": 5, "file": 2}}}).rss == 5
    assert memory_use({"memory_stats": {"usage": 9, "stats": {"total_rss": 6}}}).rss == 6
    assert memory_use({"memory_stats": {"stats": None}}).usage == 0
