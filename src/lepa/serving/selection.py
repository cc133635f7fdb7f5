"""Pure: which of an application's models answer a query, how their outputs become one, what feedback teaches.

An arm is one registered model version, `name:version`. A policy is asked twice: `choose` names the arms to ask when a
query opens; `combine` makes one output of whatever has arrived, when all have answered or at the deadline. Feedback
says what the right answer was; what each arm lost by its own answer is an `Observation`, and `learn` folds it into the
state of a context (the application, or one user of it). States are values: the management frontend keeps them, query
frontends follow, so several frontends learn as one.

    single            the first linked model                            (Clipper's DefaultOutputSelectionPolicy)
    epsilon-greedy    the arm with the least mean loss; now and then any
    thompson          the arm whose loss, drawn from what is known of it, is least
    exp3              one arm, drawn by weight; its weight falls by exp(-eta * loss / probability)
    exp4              all arms, combined by weight; every weight falls by exp(-eta * its own loss)
    majority          all arms, one vote each
    weighted          all arms, with the weights of the options
    split             one arm, drawn by the weights of the options; a user stays with his arm
    canary            the first linked model, and a share of the queries (or users) another arm

Any policy may have shadows: arms that are asked too, whose outputs are compared and never answer.

Exp3 and Exp4 are those of Auer et al., "The nonstochastic multiarmed bandit problem" (2002), as Clipper's paper uses
them. Weights are kept as a distribution, none below WEIGHT_SHARE_MIN of an equal share: an arm that was bad for a day
can come back.
"""

from collections.abc import Callable, Mapping, Sequence
from math import cos, exp, isfinite, log, pi, sqrt
from typing import Any, Literal, NamedTuple, Protocol
from zlib import crc32

import msgspec
from msgspec import Struct

from lepa.model.errors import invalid

ARMS_MAX = 32
"""Arms of one application; each may be asked for one query."""
WEIGHT_SHARE_MIN = 0.01
"""Of an equal share: the weight that an arm keeps whatever it loses."""
DISCOUNT = 0.998
"""What an old observation is worth after each new one of the same arm; a half is left after 350."""
GAMMA_TRIES_MAX = 100
"""Each try is taken with a probability of over 0.95."""

Chance = Callable[[], float]
"""A fresh number, even in 0..1, at each call."""


class PolicyOptions(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a policy does its work; each policy reads what it needs.

    epsilon: share of queries that go to any arm. eta: how fast weights fall. weights: by arm, for `split` and
    `weighted`. canary, share: the arm that gets this share. shadow: arms that are only compared. An arm is written
    `name:version`, `name` (its current version), or `version` (of the first linked model).
    combine: how several outputs become one. confidence_min: below it the answer is the default output.
    loss: `equal` (0 when right, else 1) or `absolute` (distance over loss_scale, at most 1).
    contexts: whether feedback is learned for the application alone, or for each user too.
    """

    epsilon: float = 0.1
    eta: float = 0.1
    weights: dict[str, float] = {}
    canary: str = ""
    share: float = 0.05
    shadow: tuple[str, ...] = ()
    combine: Literal["vote", "mean"] = "vote"
    confidence_min: float = 0.0
    loss: Literal["equal", "absolute"] = "equal"
    loss_scale: float = 1.0
    contexts: Literal["application", "user"] = "application"


class ArmState(Struct, frozen=True, array_like=True):
    """What is known of one arm. weight: its part of the distribution. trials, loss: how often it was judged and what
    it lost altogether, both discounted."""

    weight: float = 1.0
    trials: float = 0.0
    loss: float = 0.0


Arms = dict[str, ArmState]


class Loss(Struct, frozen=True, array_like=True):
    """What one arm lost by one answer, in 0..1, and with which probability that arm was asked."""

    loss: float
    probability: float = 1.0


class Observation(Struct, frozen=True):
    """The losses of one feedback. context: the user, "" for nobody in particular."""

    application: str
    context: str
    losses: dict[str, Loss]


class SelectionState(Struct, frozen=True):
    """What one context has learned. revision: of all states together, when this one changed."""

    application: str
    context: str
    arms: Arms = {}
    revision: int = 0


class Choice(NamedTuple):
    """The arms to ask, with their weights in the answer, and the probability with which a single one was drawn."""

    weights: dict[str, float]
    probability: float = 1.0


class Combined(NamedTuple):
    """One output (JSON) made of several. confidence: share of the asked weight that stands behind it."""

    output: bytes
    confidence: float


# Policies


class SelectionPolicy(Protocol):
    """How an application uses its arms. learns: feedback matters. links_max: models that may be linked.
    steady: a user gets the same choice each time."""

    learns: bool
    links_max: int
    steady: bool

    def choose(self, arms: Arms, options: PolicyOptions, chance: Chance) -> Choice:
        """The arms to ask out of `arms`, of which there is at least one."""


class Single:
    """The first arm."""

    learns, links_max, steady = False, 1, False

    def choose(self, arms: Arms, options: PolicyOptions, chance: Chance) -> Choice:
        return Choice({next(iter(arms)): 1.0})


class EpsilonGreedy:
    """The arm with the least mean loss; with probability epsilon any arm. Unjudged arms count as without loss."""

    learns, links_max, steady = True, ARMS_MAX, False

    def choose(self, arms: Arms, options: PolicyOptions, chance: Chance) -> Choice:
        best = min(arms, key=lambda name: arms[name].loss / max(arms[name].trials, 1e-9))
        chosen = _drawn(dict.fromkeys(arms, 1.0), chance()) if chance() < options.epsilon else best
        even = options.epsilon / len(arms)
        return Choice({chosen: 1.0}, even + (1 - options.epsilon) * (chosen == best))


class Thompson:
    """Draws each arm's mean loss from Beta(1 + loss, 1 + trials - loss) and takes the least."""

    learns, links_max, steady = True, ARMS_MAX, False

    def choose(self, arms: Arms, options: PolicyOptions, chance: Chance) -> Choice:
        def drawn_loss(name: str) -> float:
            arm = arms[name]
            lost, won = _gamma(1 + arm.loss, chance), _gamma(1 + max(0.0, arm.trials - arm.loss), chance)
            return lost / (lost + won)

        return Choice({min(arms, key=drawn_loss): 1.0})


class Exp3:
    """One arm, drawn by weight."""

    learns, links_max, steady = True, ARMS_MAX, False

    def choose(self, arms: Arms, options: PolicyOptions, chance: Chance) -> Choice:
        weights = {name: arm.weight for name, arm in arms.items()}
        chosen = _drawn(weights, chance())
        return Choice({chosen: 1.0}, weights[chosen] / sum(weights.values()))


class Exp4:
    """Every arm, by weight."""

    learns, links_max, steady = True, ARMS_MAX, False

    def choose(self, arms: Arms, options: PolicyOptions, chance: Chance) -> Choice:
        return Choice({name: arm.weight for name, arm in arms.items()})


class Majority:
    """Every arm, one vote each."""

    learns, links_max, steady = False, ARMS_MAX, False

    def choose(self, arms: Arms, options: PolicyOptions, chance: Chance) -> Choice:
        return Choice(dict.fromkeys(arms, 1.0))


class Weighted:
    """Every arm that has a weight; an arm without one counts 1 while no weights are given."""

    learns, links_max, steady = False, ARMS_MAX, False

    def choose(self, arms: Arms, options: PolicyOptions, chance: Chance) -> Choice:
        return Choice(_positive(arms))


class Split:
    """One arm, drawn by the given weights."""

    learns, links_max, steady = False, ARMS_MAX, True

    def choose(self, arms: Arms, options: PolicyOptions, chance: Chance) -> Choice:
        return Choice({_drawn(_positive(arms), chance()): 1.0})


class Canary:
    """The last arm with probability `share`, else the first."""

    learns, links_max, steady = False, 1, True

    def choose(self, arms: Arms, options: PolicyOptions, chance: Chance) -> Choice:
        names = tuple(arms)
        return Choice({names[-1] if chance() < options.share else names[0]: 1.0})


POLICIES: dict[str, SelectionPolicy] = {
    "single": Single(),
    "DefaultOutputSelectionPolicy": Single(),
    "epsilon-greedy": EpsilonGreedy(),
    "thompson": Thompson(),
    "exp3": Exp3(),
    "exp4": Exp4(),
    "majority": Majority(),
    "weighted": Weighted(),
    "split": Split(),
    "canary": Canary(),
}
"""By the name an application is registered with."""


def selection_policy(name: str) -> SelectionPolicy:
    """The policy of that name. Raises LepaError(invalid) for an unknown one."""
    policy = POLICIES.get(name)
    if policy is None:
        raise invalid(f"{name} is an invalid selection_policy. Known are {', '.join(sorted(POLICIES))}")
    return policy


def check_options(options: PolicyOptions) -> None:
    """Raise LepaError(invalid) for numbers that no policy can work with."""
    for name, value in (("epsilon", options.epsilon), ("share", options.share), ("eta", options.eta)):
        if not 0 <= value <= 1:
            raise invalid(f"{name} must be in 0..1, not {value}")
    if not 0 <= options.confidence_min <= 1:
        raise invalid(f"confidence_min must be in 0..1, not {options.confidence_min}")
    if not (isfinite(options.loss_scale) and options.loss_scale > 0):
        raise invalid(f"loss_scale must be positive, not {options.loss_scale}")
    if len(options.weights) > ARMS_MAX or len(options.shadow) > ARMS_MAX:
        raise invalid(f"an application has at most {ARMS_MAX} arms")
    if options.weights and not (
        all(isfinite(weight) and weight >= 0 for weight in options.weights.values()) and any(options.weights.values())
    ):
        raise invalid("weights must not be negative, and not all 0")


# Arms


def arms_of(
    policy: SelectionPolicy, options: PolicyOptions, links: Sequence[str], current: Mapping[str, str]
) -> dict[str, float]:
    """The arms of an application, and the weight that its options give each. current: model name -> version."""
    linked = {f"{name}:{current[name]}": 1.0 for name in links if name in current}
    if isinstance(policy, Canary):
        canary = arm_key(options.canary, links, current)
        return {**dict(list(linked.items())[:1]), **({canary: 1.0} if canary else {})}
    if options.weights and isinstance(policy, Split | Weighted):
        found = {arm_key(text, links, current): weight for text, weight in options.weights.items()}
        return {key: weight for key, weight in found.items() if key} or linked
    return linked


def arm_key(text: str, links: Sequence[str], current: Mapping[str, str]) -> str:
    """`name:version` of an arm as options write it; "" for one that does not belong to the linked models."""
    name, separator, version = text.partition(":")
    if separator:
        return text if name in links and version else ""
    if text in links:
        return f"{text}:{current[text]}" if text in current else ""
    return f"{links[0]}:{text}" if links and text else ""


def known_arms(state: SelectionState | None, keys: Mapping[str, float]) -> Arms:
    """The state of exactly these arms; a new arm begins with the mean weight and without a judgement."""
    learned = state.arms if state else {}
    weights = [learned[key].weight for key in keys if key in learned]
    mean = sum(weights) / len(weights) if weights else None
    return {key: learned.get(key) or ArmState(share if mean is None else mean) for key, share in keys.items()}


def user_chance(application: str, user: str) -> float:
    """A number in 0..1 that is always the same for one user of one application."""
    return crc32(f"{application}\0{user}".encode()) / 2**32


# Outputs


def combine(outputs: Mapping[str, bytes], weights: Mapping[str, float], how: str) -> Combined:
    """One output of those that have arrived, out of the arms asked. At least one has.

    vote: the output with the most weight; of equals, the one that was linked first. mean: the weighted mean of numbers,
    or of equally long lists of numbers; of anything else, the vote. The confidence of a vote is the share of the asked
    weight that agrees; of a mean, the share that has answered.
    """
    total = sum(weights.values()) or 1.0
    if how == "mean" and (mean := _mean(outputs, weights)) is not None:
        return Combined(msgspec.json.encode(mean), sum(weights[arm] for arm in outputs) / total)
    tally: dict[Any, float] = {}
    first: dict[Any, bytes] = {}
    for arm in weights:
        if arm in outputs:
            value = _comparable(outputs[arm])
            tally[value] = tally.get(value, 0.0) + weights[arm]
            first.setdefault(value, outputs[arm])
    winner = max(tally, key=lambda value: tally[value])
    return Combined(first[winner], tally[winner] / total)


def _mean(outputs: Mapping[str, bytes], weights: Mapping[str, float]) -> Any:
    rows = [(weights[arm], _numbers(output)) for arm, output in outputs.items()]
    total = sum(weight for weight, _ in rows)
    widths = {len(numbers) for _, numbers in rows if numbers is not None}
    if any(numbers is None for _, numbers in rows) or len(widths) != 1 or not total:
        return None
    means = [sum(w * n[i] for w, n in rows if n is not None) / total for i in range(widths.pop())]
    return means if next(iter(outputs.values())).lstrip().startswith(b"[") else means[0]


def _numbers(output: bytes) -> list[float] | None:
    value = msgspec.json.decode(output)
    values = value if isinstance(value, list) else [value]
    return values if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values) else None


def _comparable(output: bytes) -> Any:
    """Equal for equal values: 1 and 1.0, lists with other blanks."""
    value = msgspec.json.decode(output)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return msgspec.json.encode(value, order="sorted")
    return value


# Learning


def loss_of(output: bytes | None, label: float | str, options: PolicyOptions) -> float:
    """What an arm loses by this output (JSON) when `label` was right, in 0..1; no output at all loses 1."""
    if output is None:
        return 1.0
    value = msgspec.json.decode(output)
    if options.loss == "equal":
        return float(value != label)
    if isinstance(value, int | float) and isinstance(label, int | float):
        return min(1.0, abs(value - label) / options.loss_scale)
    return 1.0


def learn(arms: Arms, losses: Mapping[str, Loss], options: PolicyOptions) -> Arms:
    """The arms after one feedback; arms that it does not speak of are learned with the mean weight."""
    mean = sum(arm.weight for arm in arms.values()) / len(arms) if arms else 1.0
    judged = {**arms, **{name: ArmState(mean) for name in losses if name not in arms}}
    for name, loss in losses.items():
        judged[name] = _judged(judged[name], loss, options)
    return _as_distribution(judged)


def _judged(arm: ArmState, loss: Loss, options: PolicyOptions) -> ArmState:
    lost = min(max(loss.loss, 0.0), 1.0)
    weight = arm.weight * exp(-options.eta * lost / max(loss.probability, 1e-3))
    return ArmState(weight, arm.trials * DISCOUNT + 1, arm.loss * DISCOUNT + lost)


def _as_distribution(arms: Arms) -> Arms:
    """Weights that sum up to 1, none below its least share."""
    total = sum(arm.weight for arm in arms.values())
    least = WEIGHT_SHARE_MIN / len(arms)
    raised = [max(arm.weight / total if total else 1.0, least) for arm in arms.values()]
    scale = sum(raised)
    pairs = zip(arms.items(), raised, strict=True)
    return {name: ArmState(weight / scale, arm.trials, arm.loss) for (name, arm), weight in pairs}


# Chance


def _positive(arms: Arms) -> dict[str, float]:
    return {name: arm.weight for name, arm in arms.items() if arm.weight > 0} or dict.fromkeys(arms, 1.0)


def _drawn(weights: Mapping[str, float], chance: float) -> str:
    """One key, drawn by weight."""
    left = chance * sum(weights.values())
    for name, weight in weights.items():
        left -= weight
        if left < 0:
            return name
    return name


def _gamma(shape: float, chance: Chance) -> float:
    """A draw from Gamma(shape >= 1, 1): Marsaglia and Tsang, "A simple method for generating gamma variables"."""
    d = shape - 1 / 3
    for _ in range(GAMMA_TRIES_MAX):
        x = sqrt(-2 * log(1 - chance() * (1 - 1e-12))) * cos(2 * pi * chance())
        v = (1 + x / sqrt(9 * d)) ** 3
        if v > 0 and log(1 - chance() * (1 - 1e-12)) < x * x / 2 + d - d * v + d * log(v):
            return d * v
    return d
