"""Pure: how fast gossip goes: LAN between servers of a site, WAN over long ways, LOCAL on one machine.

The numbers are memberlist's, so clusters of both kinds of program agree on how long silence may last.
"""

import math
from typing import Final, NamedTuple


class Profile(NamedTuple):
    """Times are seconds.

    suspicion_mult: how often a silent member's probe interval is multiplied before it counts as dead.
    suspicion_max_mult: how much longer that may take while nobody else accuses it.
    retransmit_mult: how often news is passed on, times the digits of the cluster's size.
    gossip_nodes: to how many members news goes every gossip_interval_s.
    gossip_to_dead_s: how long the dead are told that they are dead, and remembered.
    """

    stream_timeout_s: float = 10.0
    indirect_checks: int = 3
    retransmit_mult: int = 4
    suspicion_mult: int = 4
    suspicion_max_mult: int = 6
    push_pull_interval_s: float = 30.0
    probe_timeout_s: float = 0.5
    probe_interval_s: float = 1.0
    gossip_nodes: int = 3
    gossip_interval_s: float = 0.2
    gossip_to_dead_s: float = 30.0
    reclaim_s: float = 0.0

    def transmits(self, members: int) -> int:
        """How often one member passes a piece of news on."""
        return self.retransmit_mult * math.ceil(math.log10(members + 1))

    def push_pull_scale(self, members: int) -> int:
        """How much rarer states are exchanged in large clusters."""
        return 1 if members <= 32 else math.ceil(math.log2(members) - 5) + 1

    def suspicion_bounds(self, members: int) -> tuple[float, float, int]:
        """Least and greatest time a member is suspected, and how many accusers make it the least."""
        accusers = self.suspicion_mult - 2
        if members - 2 < accusers:
            accusers = 0
        least = self.suspicion_mult * max(1.0, math.log10(max(1, members))) * self.probe_interval_s
        return least, self.suspicion_max_mult * least, accusers


LAN: Final = Profile()
WAN: Final = Profile(
    stream_timeout_s=30.0,
    suspicion_mult=6,
    push_pull_interval_s=60.0,
    probe_timeout_s=3.0,
    probe_interval_s=5.0,
    gossip_nodes=4,
    gossip_interval_s=0.5,
    gossip_to_dead_s=60.0,
)
LOCAL: Final = Profile(
    stream_timeout_s=1.0,
    indirect_checks=1,
    retransmit_mult=2,
    suspicion_mult=3,
    push_pull_interval_s=15.0,
    probe_timeout_s=0.2,
    gossip_interval_s=0.1,
    gossip_to_dead_s=15.0,
)
PROFILES: Final = {"lan": LAN, "wan": WAN, "local": LOCAL}

HEALTH_MAX: Final = 7
"""The worst score of one's own health: probes then take eight times as long."""
