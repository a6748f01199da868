"""What credit rules need of an experiment, held against what the experiment has: before any compute.

A rule declares its needs in its `Estimator`: the entry of `turnwise.credit.ESTIMATORS`, or the plug-in itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from turnwise.config.schema import Credit, ThoughtCredit
from turnwise.credit import ESTIMATORS, estimator_of, require_options, rules_of
from turnwise.credit.batch import RESCORED, Rescored
from turnwise.credit.declaration import require_answer, require_declaration
from turnwise.errors import ConfigurationError, CreditError


@dataclass(frozen=True)
class CreditInputs:
    """What an experiment has for its credit rules."""

    world: str
    names_states: bool
    """Whether the world names the state before each turn."""
    group_size: int
    acting_turns: int
    """The most turns in which an episode of training may act."""
    further_turns: bool
    """Whether a summary, a plan or a lesson is a turn, too."""
    token_rewards: bool
    """Whether there are rewards per token."""
    rewrites_context: bool = False
    """Whether an episode may be more than one token sequence."""
    names_answers: bool = False
    """Whether the world names the right answer of each task."""


def require_credit(credit: Credit, inputs: CreditInputs) -> None:
    """Raise ConfigurationError for a rule that is unknown, has no such option, or lacks what it needs."""
    _require_estimator("credit", credit, inputs)
    if (thought := credit.thought) is None:
        return
    teacher_of(credit)
    _require_estimator("credit.thought", thought, inputs)
    if (thought.estimator, thought.options, thought.weight) == (credit.estimator, credit.options, 1.0):
        raise ConfigurationError(
            "credit.thought must differ from the credit of the action in its estimator, options or weight; found "
            "the same, which is the credit of the whole reply: set credit.thought to null",
            "TW-changes-nothing",
        )
    if needs_critic(thought.estimator) and not needs_critic(credit.estimator):
        raise ConfigurationError(
            f"credit.thought.estimator {thought.estimator} needs a critic, which learns from credit.estimator; "
            f"found {credit.estimator} there, which has none: set it to an estimator of the GAE family too",
            "TW-no-critic",
        )


def needs_critic(estimator: str) -> bool:
    """Whether an estimator needs a critic's state values."""
    return "values" in estimator_of(estimator).needs


def require_privileged(inputs: CreditInputs) -> None:
    """Raise ConfigurationError where a critic cannot be shown the right answer of each task."""
    if not inputs.names_answers:
        raise ConfigurationError(
            f"critic.privileged shows the critic the right answer of each task, which the world must name; "
            f"{inputs.world!r} names none: set it to false, or choose a world such as 'search'",
            "TW-world-without-answers",
        )
    if inputs.rewrites_context:
        raise ConfigurationError(
            "critic.privileged shows the critic each whole episode, with the right answer in the first message, so "
            "that the context must only grow: set agent.context.policy to 'full', agent.thoughts to kept and "
            "agent.mode to plain",
            "TW-context-not-whole",
        )


def rescored_needs(credit: Credit) -> tuple[Rescored, ...]:
    """What its rules need for which a policy must read the rollout once more."""
    return tuple(need for need in RESCORED if _needs(credit, need))


def teacher_of(credit: Credit) -> str | None:
    """The model that a rule learns from in place of the policy in hindsight; None: none.

    Raises ConfigurationError where the rules of action and thought differ in it: a rollout is scored by one of them.
    """
    learning = [rule for rule in rules_of(credit) if "hindsight" in estimator_of(rule.estimator).needs]
    teachers = {rule.options.get("teacher") for rule in learning}
    if len(teachers) > 1:
        raise ConfigurationError(
            "credit.thought.options.teacher must be that of credit.options, since one teacher scores a rollout; found "
            f"{' and '.join(sorted(str(each or 'none') for each in teachers))}",
            "TW-two-teachers",
        )
    return next(iter(teachers), None)


def needs_greedy(credit: Credit) -> bool:
    """Whether its rules compare with a greedy episode of each task."""
    return _needs(credit, "greedy_rewards")


def require_greedy(credit: Credit, scheme: str, selection: str) -> None:
    """Raise ConfigurationError where groups are not tasks, of which each has a greedy episode."""
    for key, setting, alternative in (("rollout.scheme", scheme, "independent"), ("selection.rule", selection, "all")):
        if setting in ("branching", "tree", "mixed") and needs_greedy(credit):
            raise ConfigurationError(
                f"a rule that compares with the greedy episode of each task needs one group per task, sampled in one "
                f"round; found {key}: {setting} with credit.estimator {credit.estimator}: set it to {alternative}, or "
                "choose another estimator",
                "TW-greedy-pairing",
            )


def _needs(credit: Credit, need: str) -> bool:
    return any(need in estimator_of(rule.estimator).needs for rule in rules_of(credit))


def require_trees(credit: Credit, scheme: str, trees: int | None, group_size: int, selection: str) -> None:
    """Raise ConfigurationError for groups of trees that cannot be grown, or a rule that cannot be used with them."""
    if scheme != "tree":
        if _needs(credit, "trees") or trees is not None:
            what = (
                f"credit.estimator {credit.estimator} compares" if _needs(credit, "trees") else "rollout.trees counts"
            )
            raise ConfigurationError(
                f"{what} the branches of trees, which only rollout.scheme tree grows; found rollout.scheme: {scheme}: "
                "set it to tree, with rollout.trees" + ("" if trees is None else ", or rollout.trees to null"),
                "TW-scheme-not-tree",
            )
        return
    if trees is None or group_size % trees or group_size < 2 * trees:
        raise ConfigurationError(
            "rollout.scheme tree grows rollout.trees trees of at least two branches each, which together are the "
            f"group: rollout.group_size must be a multiple of it; found {group_size} and rollout.trees: "
            f"{'null' if trees is None else trees}: set rollout.trees to 2 and rollout.group_size to 6, for instance",
            "TW-tree-shape",
        )
    if _needs(credit, "anchors"):
        raise ConfigurationError(
            "rollout.scheme tree goes with rules that compare no visits to states, since replayed turns would count as "
            f"visits; found credit.estimator: {credit.estimator}: choose another, or the scheme independent",
            "TW-tree-with-visits",
        )
    if selection == "mixed":
        raise ConfigurationError(
            "rollout.scheme tree cannot go with selection.rule mixed, whose further rounds would need trees of their "
            "own: choose another rule, or the scheme independent",
            "TW-scheme-with-mixed",
        )


def require_branching(estimator: str, selection: str) -> None:
    """Raise ConfigurationError for an estimator or a selection rule that cannot be used with branching groups."""
    excluded_needs = {"anchors", "trees"}
    alternatives = [name for name, each in ESTIMATORS.items() if each.grouped and not excluded_needs & {*each.needs}]
    rule = estimator_of(estimator)
    if not rule.grouped or excluded_needs & {*rule.needs}:
        reason = (
            "its anchor states are what a branching group shares already, and replayed turns would count as visits"
            if "anchors" in rule.needs
            else "its trees are those of the scheme tree"
            if "trees" in rule.needs
            else "it compares nothing within a group, so that the groups would be sampled for nothing"
        )
        raise ConfigurationError(
            f"rollout.scheme branching goes with the estimators {', '.join(alternatives)}; found credit.estimator: "
            f"{estimator}: {reason}. Choose one of those, or the scheme independent",
            "TW-branching-estimator",
        )
    if selection == "mixed":
        raise ConfigurationError(
            "rollout.scheme branching cannot go with selection.rule mixed, which samples prompts again until there are "
            "rollout.prompts groups: a prompt has as many groups as its trunk has turns. Choose another rule, or the "
            "scheme independent",
            "TW-scheme-with-mixed",
        )


def _require_estimator(key: str, section: Credit | ThoughtCredit, inputs: CreditInputs) -> None:
    name = section.estimator
    try:
        estimator_of(name)
    except CreditError as error:
        raise ConfigurationError(str(error).replace("credit.estimator", f"{key}.estimator", 1)) from error
    try:
        require_options(name, section.options)
    except CreditError as error:
        raise ConfigurationError(f"{key}.options: {error}") from error
    estimator = estimator_of(name)
    require_declaration(f"{key}.estimator {name}", estimator)
    if estimator.grouped and inputs.group_size < 2:
        raise ConfigurationError(
            "group size must be at least 2 to form a baseline; "
            f"found rollout.group_size: {inputs.group_size} with {key}.estimator: {name}",
            "TW-small-group",
        )
    if "anchors" in estimator.needs and not inputs.names_states:
        raise ConfigurationError(
            f"{key}.estimator {name} compares visits to the same state, which the world must name; "
            f"{inputs.world!r} names none: choose another estimator",
            "TW-world-without-states",
        )
    asks_for_answers = not {"answer_scores", "start_answer_scores"}.isdisjoint(estimator.needs)
    if asks_for_answers and not inputs.names_answers:
        raise ConfigurationError(
            f"{key}.estimator {name} asks a policy for the right answer of each task, which the world must name; "
            f"{inputs.world!r} names none: choose another estimator, or a world such as 'search'",
            "TW-world-without-answers",
        )
    if "hindsight" in estimator.needs and inputs.rewrites_context and section.options.get("teacher") is None:
        raise ConfigurationError(
            f"{key}.estimator {name} shows the policy its whole episode again, with what came of it in the first "
            "message, so that the context must only grow: set agent.context.policy to 'full', agent.thoughts to kept "
            "and agent.mode to plain",
            "TW-context-not-whole",
        )
    if asks_for_answers and inputs.further_turns:
        raise ConfigurationError(
            f"{key}.estimator {name} asks before every turn how likely the right answer is, and in a turn that is a "
            "summary, a plan or a lesson none can be given: set agent.mode to plain and agent.context.policy to 'full' "
            "or 'window'",
            "TW-context-not-whole",
        )
    if not estimator.token_rewards and inputs.token_rewards:
        raise ConfigurationError(
            f"{key}.estimator {name} has no place for rewards per token, which optimization.reference with place: "
            "reward is; set its place to loss",
            "TW-no-token-rewards",
        )
    if name not in ESTIMATORS:
        require_answer(f"{key}.estimator", name, section.options)
    restriction = estimator.restriction(section.options)
    if restriction is None:
        return
    option, most = f"{restriction.option} {restriction.value!r}", restriction.most_turns
    instead = f"{key}.options.{restriction.option} to {restriction.instead!r}"
    if most is not None and inputs.acting_turns > most:
        raise ConfigurationError(
            f"{key}.estimator {name} with {option} is defined on at most {most} turns; training allows "
            f"{inputs.acting_turns}; set {instead}, or the curriculum's limit to {most}",
            "TW-too-many-turns",
        )
    if most is not None and inputs.further_turns:
        raise ConfigurationError(
            f"{key}.estimator {name} with {option} is defined on at most {most} turns, and a summary, a plan or a "
            f"lesson is a turn; set {instead}, agent.mode to plain and agent.context.policy to 'full' or 'window'",
            "TW-too-many-turns",
        )
    if not restriction.token_rewards and inputs.token_rewards:
        raise ConfigurationError(
            f"{key}.estimator {name} with {option} has no place for rewards per token, which optimization.reference "
            f"with place: reward is; set its place to loss, or {instead}",
            "TW-no-token-rewards",
        )
