"""Metrics as lines for statsd and its kin."""

from lepa.kit.statsd import Dialect, News, lines, packets

GAUGES = {("nomad.client.uptime", (("node", "n.1"),)): 5.0, ("other", ()): 0.5}
NEWS = (
    News("c", "nomad.rpc.request", 1.0, ()),
    News("ms", "nomad.raft.apply", 12.5, (("a b", "c:d"),)),
    News("c", "nomad.rpc.request", 2.0, ()),
)


def test_plain_lines_have_labels_and_hosts_in_their_names() -> None:
    assert list(lines(GAUGES, NEWS, Dialect("here"))) == [
        b"nomad.here.client.uptime.n_1:5|g\n",
        b"other:0.5|g\n",
        b"nomad.raft.apply.c_d:12.5|ms\n",
        b"nomad.rpc.request:3|c\n",
    ]


def test_tags_are_those_of_the_agent_and_the_labels() -> None:
    assert list(lines(GAUGES, NEWS, Dialect(tags=("team:sea",)))) == [
        b"nomad.client.uptime:5|g|#team:sea,node:n.1\n",
        b"other:0.5|g|#team:sea\n",
        b"nomad.raft.apply:12.5|ms|#team:sea,a_b:c_d\n",
        b"nomad.rpc.request:3|c|#team:sea\n",
    ]
    assert next(lines({("a", ()): 1.0}, (), Dialect(tags=()))) == b"a:1|g\n"


def test_packets_are_as_full_as_they_may_be() -> None:
    assert list(packets([b"aaa\n", b"bbb\n", b"c" * 20, b"d\n"], 8)) == [b"aaa\nbbb\n", b"c" * 20, b"d\n"]
    assert list(packets([])) == []
