"""Rollouts that other systems have written, read as trajectories: for their credit, not to be trained on.

    messages    JSON lines: {"messages": [{"role", "content"}, ...], "reward" or "rewards", "group"}; also verifiers'
                results.jsonl, {"example_id", "prompt", "completion", "reward"}. A reward of a single turn stands at its
                message.
    trl         GRPOTrainer with log_completions: completions_00001.parquet, or its rows as JSON lines. Every column
                between `completion` and `advantage` that holds numbers is a reward.
    verl        trainer.rollout_data_dir: 1.jsonl with {"input", "output", "score", "step"}, and "uid" of the form
                UID_SESSION_TURN where a session has several rows.
    prime-rl    rollouts/step_1/train/all/traces.jsonl: episodes of verifiers, with tokens message by message.
    slime       the samples of --save-debug-rollout-data as JSON lines: {"tokens", "response_length", "reward"}, and a
                loss mask. The file itself is a pickle, which is not read: `CONVERT_SAMPLES` writes the lines of it.

The formats are those of TRL f2cd577, verl 1dda039, prime-rl 559b447 with verifiers a60a606, and slime 624b824.

A trajectory has exact tokens where its file has them (prime-rl, slime). Elsewhere a tokenizer counts a reply, or
words between white space do: `Imported.counted` says which. Equal observations are taken for equal states, as GiGPO
takes them. What one file calls a group, by a number or by the same prompt in the same step, is one.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from turnwise.data.row_files import SUFFIXES, read_rows
from turnwise.data.trajectory import Ending, Trajectory, Turn
from turnwise.errors import ConfigurationError
from turnwise.world import Task

if TYPE_CHECKING:
    from tokenizers import Tokenizer

RolloutFormat = Literal["messages", "trl", "verl", "prime-rl", "slime"]
FORMATS: tuple[RolloutFormat, ...] = get_args(RolloutFormat)
PICKLES = (".pt", ".pth", ".pkl", ".pickle")
REWARD = "reward"
"""The name of a reward that its file has no name for."""
CONVERT_SAMPLES = (
    'python -c "import json, sys, torch; [print(json.dumps(each, default=lambda value: value.tolist())) '
    "for each in torch.load(sys.argv[1], map_location='cpu')['samples']]\" {0} > {1}"
)
"""The command that writes slime's file {0} as JSON lines, {1}, with the torch of those who trust the file."""
EXACT, TOKENIZED, WORDS = "tokens as they were sampled", "tokens of the tokenizer", "words"


@dataclass(frozen=True)
class Imported:
    """Trajectories of another system, in the order of its files."""

    trajectories: list[Trajectory]
    format: RolloutFormat
    rewards: dict[str, tuple[Literal["turn", "outcome"], float]]
    """By name, the level of a reward and its weight."""
    length_measure: str
    """What the length of a reply counts: `EXACT`, `TOKENIZED` or `WORDS`."""
    notes: list[str] = field(default_factory=list)


@dataclass
class _Reply:
    """One reply, and what came before it."""

    observation: str
    text: str
    tokens: Sequence[int] | None = None
    log_probabilities: Sequence[float] | None = None
    rewards: dict[str, float] = field(default_factory=dict)
    opens_segment: bool = False


@dataclass
class _Episode:
    """One trajectory, as its file tells it."""

    group: Hashable
    replies: list[_Reply]
    rewards: dict[str, float]
    weights: dict[str, float] = field(default_factory=dict)
    truncated: bool = False
    final: str = ""
    task: str = ""


class _Row:
    """One row of a file, whose fields are read with what must hold."""

    def __init__(self, values: Any, file: Path, where: str, within: str = "") -> None:
        self.file, self.where, self._within = file, where, within
        if not isinstance(values, Mapping):
            raise self.error("", "must be an object with named fields", values)
        self.values = values

    def error(self, name: str, must: str, value: Any) -> ConfigurationError:
        """The refusal of a field."""
        text = json.dumps(value, default=str) if not isinstance(value, str) else repr(value)
        which, text = f" {self._within}{name}".rstrip(". "), text if len(text) <= 80 else f"{text[:80]}..."
        return ConfigurationError(f"{self.where}:{which} {must}; found {text}", "TW-rollout-field")

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def text(self, name: str, default: str | None = None) -> str:
        """A text."""
        value = self.values.get(name, default)
        if not isinstance(value, str):
            raise self.error(name, "must be a text", value)
        return value

    def number_of(self, name: str) -> float:
        """A finite number."""
        return self.as_number(name, self.values.get(name))

    def as_number(self, name: str, value: Any) -> float:
        """The value of a field as a finite number."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self.error(name, "must be a finite number", value)
        return float(value)

    def integers(self, name: str) -> list[int]:
        """A list of whole numbers."""
        numbers: Any = self.values.get(name)
        if not isinstance(numbers, list) or any(
            isinstance(each, bool) or not isinstance(each, int) for each in numbers
        ):
            raise self.error(name, "must be a list of whole numbers", numbers)
        return numbers

    def rows(self, name: str) -> list[_Row]:
        """A list of objects, each read as a row."""
        return [
            _Row(each, self.file, self.where, f"{self._within}{name}[{place}].")
            for place, each in enumerate(self.entries(name))
        ]

    def entries(self, name: str) -> list[Any]:
        """A list."""
        entries = self.values.get(name)
        if not isinstance(entries, list):
            raise self.error(name, "must be a list", entries)
        return entries

    def numbers(self, name: str) -> list[float]:
        """A list of finite numbers."""
        return [self.as_number(f"{name}[{place}]", each) for place, each in enumerate(self.entries(name))]

    def part(self, name: str) -> _Row:
        """An object with named fields, read as a row; null or absent: one without fields."""
        value = self.values.get(name)
        return _Row({} if value is None else value, self.file, self.where, f"{self._within}{name}.")

    def identity(self, name: str, default: Hashable = None) -> Hashable:
        """A text or a number that rows have in common which belong together."""
        value = self.values.get(name)
        if not isinstance(value, str | int | float | None):
            raise self.error(name, "must be a text or a number", value)
        return default if value is None else value


def read_rollouts(
    files: Sequence[Path], format: RolloutFormat | None = None, tokenizer: Tokenizer | None = None
) -> Imported:
    """The trajectories of these files, which are of one format; None: the format is known by the first row.

    A folder stands for its files that end in `.jsonl` or `.parquet`, in the order of their names.

    `tokenizer` counts replies that are text alone, and spells those that are tokens alone.

    Raises:
        ConfigurationError: a file is missing, empty or of no known format, or a row of it is wrong: with file, row and
            field.
    """
    rows = [row for file in _listed(files) for row in _rows(file)]
    if not rows:
        raise ConfigurationError(
            f"a file of rollouts must have rows; found none in {', '.join(map(str, files))}", "TW-empty-file"
        )
    rollout_format = format or _format_of(rows[0])
    episodes, notes = _READERS[rollout_format](rows)
    return _imported(episodes, rollout_format, tokenizer, notes)


def _listed(files: Sequence[Path]) -> Iterator[Path]:
    for file in files:
        if file.is_dir():
            files_of_folder = sorted(file.iterdir())
            rollouts = [each for each in files_of_folder if each.suffix in SUFFIXES]
            # Where all are pickles, the first is refused as one.
            rollouts = rollouts or [each for each in files_of_folder if each.suffix in PICKLES]
            if not rollouts:
                raise ConfigurationError(
                    f"a folder of rollouts must have .jsonl or .parquet files; {file} has none", "TW-missing-file"
                )
            yield from rollouts
        elif file.is_file():
            yield file
        else:
            raise ConfigurationError(f"a file of rollouts must exist; found none at {file}", "TW-missing-file")


def _rows(file: Path) -> Iterator[_Row]:
    if file.suffix in PICKLES:
        command = CONVERT_SAMPLES.format(*(shlex.quote(str(each)) for each in (file, file.with_suffix(".jsonl"))))
        raise ConfigurationError(
            f"a file of rollouts must be JSON lines or Parquet; {file} is a pickle, which could run code: where you "
            f"trust it, write slime's as JSON lines: {command}",
            "TW-pickled-file",
        )
    for values, where in read_rows(file):
        yield _Row(values, file, where)


def _format_of(row: _Row) -> RolloutFormat:
    formats: dict[RolloutFormat, tuple[set[str], ...]] = {
        "prime-rl": ({"traces"},),
        "verl": ({"input", "output", "score"},),
        "slime": ({"tokens", "response_length", "reward"},),
        "trl": ({"prompt", "completion", "advantage"},),
        "messages": ({"messages"}, {"prompt", "completion", "reward"}),
    }
    for name, choices in formats.items():
        if any(fields <= row.values.keys() for fields in choices):
            return name
    raise ConfigurationError(
        f"{row.where}: must have the fields of a known format "
        f"({'; '.join(' or '.join(', '.join(sorted(each)) for each in choices) for choices in formats.values())}); "
        f"found {', '.join(map(str, row.values)) or 'none'}: name it with --format {'|'.join(FORMATS)}",
        "TW-rollout-format",
    )


def _read_messages(rows: Sequence[_Row]) -> tuple[list[_Episode], list[str]]:
    return [_episode_from_messages(row) for row in rows], []


def _episode_from_messages(row: _Row) -> _Episode:
    """One row with messages, of which those of the assistant are replies; of a prompt's they are context."""
    if "messages" in row:
        messages = row.rows("messages")
        context = 0
    else:
        prompt, completion = _as_messages(row, "prompt", "user"), _as_messages(row, "completion", "assistant")
        messages, context = [*prompt, *completion], len(prompt)
    replies: list[_Reply] = []
    observed: list[str] = []
    first = ""
    for place, message in enumerate(messages):
        content = _content(message)
        if message.text("role") != "assistant" or place < context:
            observed.append(content)
            continue
        first = first or "\n".join(observed)
        replies.append(_Reply("\n".join(observed), content, rewards=_named_rewards(message)))
        observed = []
    if not replies:
        raise row.error("messages", "must have a reply, a message of the role assistant", [m.values for m in messages])
    rewards = _named_rewards(row)
    if not rewards and not any(reply.rewards for reply in replies):
        raise row.error("reward", "must be a number, or `rewards` numbers by name", row.values.get("reward"))
    key = next((name for name in ("group", "group_id", "example_id", "prompt_id", "task") if name in row), None)
    group: Hashable = first if key is None else f"{key} {row.values[key]}"
    return _Episode(
        (row.file, group),
        replies,
        rewards,
        truncated=bool(row.values.get("is_truncated", row.values.get("truncated", False))),
        final="\n".join(observed),
        task="" if key is None else str(row.values[key]),
    )


def _as_messages(row: _Row, name: str, role: str) -> list[_Row]:
    """A list of messages, or a text as one message of this role."""
    field = row.values.get(name)
    if isinstance(field, str):
        return [_Row({"role": role, "content": field}, row.file, row.where)]
    return row.rows(name)


def _content(message: _Row) -> str:
    """The text of a message: what it says, and the functions that it calls."""
    content = message.values.get("content") or ""
    if isinstance(content, list):  # parts
        content = "".join(part.text("text", "") for part in message.rows("content"))
    if not isinstance(content, str):
        raise message.error("content", "must be a text or a list of parts", content)
    calls = message.entries("tool_calls") if "tool_calls" in message else []
    return content + "".join(f"\n{call if isinstance(call, str) else json.dumps(call)}" for call in calls)


def _named_rewards(row: _Row) -> dict[str, float]:
    """The rewards of a row or a message: `rewards` by name, or one `reward`."""
    if "rewards" not in row:
        return {REWARD: row.number_of("reward")} if "reward" in row else {}
    rewards = row.values["rewards"]
    if not isinstance(rewards, Mapping):
        raise row.error("rewards", "must be numbers by name", rewards)
    return {str(name): row.as_number(f"rewards.{name}", value) for name, value in rewards.items()}


def _read_trl(rows: Sequence[_Row]) -> tuple[list[_Episode], list[str]]:
    names = list(rows[0].values)
    last = names.index("advantage") if "advantage" in names else len(names)
    first = names.index("completion") + 1 if "completion" in names else 0
    columns = [
        name for name in names[first:last] if all(isinstance(row.values.get(name), int | float | None) for row in rows)
    ]
    if not columns:
        raise rows[0].error("", "must have a column of rewards between completion and advantage", names)
    episodes = []
    for row in rows:
        if missing := [name for name in names if name not in row.values]:
            raise row.error(missing[0], "must be there as in the first row", None)
        # A reward function of TRL's may say nothing of a completion: null, which counts as nothing.
        rewards = {name: row.number_of(name) for name in columns if not _is_nothing(row.values[name])}
        prompt = _as_text(row, "prompt")
        step = row.identity("step", 0)
        episodes.append(
            _Episode((step, prompt), [_Reply(prompt, _as_text(row, "completion"))], rewards, task=f"step {step}")
        )
    return episodes, [
        "TRL's table has one text per completion: one turn per episode. Its reward weights are not in it: each is 1."
    ]


def _is_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _as_text(row: _Row, name: str) -> str:
    """A text, or a list of messages joined."""
    if isinstance(row.values.get(name), list):
        return "\n".join(_content(message) for message in row.rows(name))
    return row.text(name)


def _read_verl(rows: Sequence[_Row]) -> tuple[list[_Episode], list[str]]:
    """Rows of one session (`uid` UID_SESSION_TURN) are its turns, each in a context of its own."""
    sessions: dict[tuple[Hashable, ...], list[tuple[int, _Row]]] = {}
    for row in rows:
        step, parts = row.identity("step", 0), str(row.values.get("uid", "")).rsplit("_", 2)
        if len(parts) == 3 and parts[1].isdecimal() and parts[2].isdecimal():
            sessions.setdefault((row.file, step, parts[0], int(parts[1])), []).append((int(parts[2]), row))
        else:
            sessions[row.file, step, id(row)] = [(0, row)]
    episodes = []
    for key, numbered_rows in sessions.items():
        turns = [row for _, row in sorted(numbered_rows, key=lambda each: each[0])]
        replies = [
            _Reply(row.text("input"), row.text("output"), opens_segment=place > 0) for place, row in enumerate(turns)
        ]
        step, group = key[1], key[2] if len(key) == 4 else turns[0].text("input")
        episodes.append(_Episode((step, group), replies, {REWARD: turns[-1].number_of("score")}, task=f"step {step}"))
    several = any(len(episode.replies) > 1 for episode in episodes)
    return episodes, [] if several else ["verl's dump has one text per trajectory: one turn per episode."]


def _read_prime_rl(rows: Sequence[_Row]) -> tuple[list[_Episode], list[str]]:
    """Each trainable trace of an episode; its branches are segments, in which a message that two share is one reply."""
    episodes = []
    untrained = unscored = 0
    for row in rows:
        for trace in row.rows("traces") if "traces" in row else []:
            agent = trace.part("agent")
            if not agent.values.get("trainable", True):
                untrained += 1
                continue
            rewards, weights = {}, {}
            reward_row = trace.part("rewards")
            for name in reward_row.values:
                if name not in reward_row:
                    continue
                reward = reward_row.part(name)
                rewards[name] = reward.number_of("score")
                weights[name] = reward.number_of("weight") if "weight" in reward else 1.0
            if not rewards:
                unscored += 1
                continue
            replies, final = _replies_from_nodes(trace)
            task = (trace if trace.values.get("task") else row).part("task")
            task_identity = task.identity("key", task.identity("hash", json.dumps(task.values)))
            group = row.part("group").identity("id", task_identity)
            episodes.append(
                _Episode(
                    (row.file, group, agent.identity("name", "agent")),
                    replies,
                    rewards,
                    weights,
                    truncated=trace.values.get("stop_condition") not in (None, "agent_completed", "error"),
                    final=final,
                    task=str(group),
                )
            )
    notes = [f"{untrained} traces of agents that are not trained are left out."] if untrained else []
    return episodes, notes + ([f"{unscored} traces without a reward are left out."] if unscored else [])


def _replies_from_nodes(trace: _Row) -> tuple[list[_Reply], str]:
    """The replies of a graph of messages, each once, and what was said after the last one.

    Each path from a root to a leaf is a context of its own: a segment, whose first new reply follows all that is before
    it on the path. A reply that several paths share belongs to the first.
    """
    nodes = trace.rows("nodes")
    parents = [node.values.get("parent") for node in nodes]
    for place, (node, parent) in enumerate(zip(nodes, parents, strict=True)):
        if parent is not None and not (isinstance(parent, int) and 0 <= parent < place):
            raise node.error("parent", f"must be null or the index of a node before {place}", parent)
    replies: list[_Reply] = []
    assigned_nodes: set[int] = set()
    observed: list[str] = []
    for leaf in sorted(set(range(len(nodes))) - {parent for parent in parents if parent is not None}):
        path: list[int] = []
        above: int | None = leaf
        while above is not None:
            path.insert(0, above)
            above = parents[above]
        observed, rewritten = [], bool(replies)
        for place in path:
            text = _content(_Row(nodes[place].values.get("message"), trace.file, trace.where))
            if nodes[place].values.get("sampled") and place not in assigned_nodes:
                reply = _Reply("\n".join(observed), text, *_sampled(nodes[place]), opens_segment=rewritten)
                replies.append(reply)
                assigned_nodes.add(place)
                observed, rewritten = [], False
            else:
                observed.append(text)
    if not replies:
        raise trace.error("nodes", "must have a reply, a node that was sampled", len(nodes))
    return replies, "\n".join(observed)


def _sampled(node: _Row) -> tuple[list[int] | None, list[float] | None]:
    """The sampled tokens of a node with their log-probabilities; None where the file is without."""
    mask = node.entries("mask") if "mask" in node else []
    tokens = node.integers("token_ids") if "token_ids" in node else []
    if len(mask) != len(tokens):
        raise node.error("mask", f"must have one entry per token, {len(tokens)}", len(mask))
    sampled = [token for token, is_sampled in zip(tokens, mask, strict=True) if is_sampled]
    log_probabilities = node.numbers("logprobs") if "logprobs" in node else []
    if log_probabilities and len(log_probabilities) != len(sampled):
        raise node.error("logprobs", f"must have one number per sampled token, {len(sampled)}", len(log_probabilities))
    return sampled or None, log_probabilities or None


def _read_slime(rows: Sequence[_Row]) -> tuple[list[_Episode], list[str]]:
    """Each sample; what the loss mask holds together of its response is a reply. Siblings of a rollout are segments."""
    rollouts: dict[Hashable, list[_Row]] = {}
    for row in rows:
        rollouts.setdefault((row.file, row.identity("rollout_id", f"row {id(row)}")), []).append(row)
    episodes = []
    for samples in rollouts.values():
        replies: list[_Reply] = []
        for place, row in enumerate(samples):
            sample_replies = _replies_from_response(row)
            replies += [replace(sample_replies[0], opens_segment=place > 0), *sample_replies[1:]]
        last = samples[-1]
        reward = last.values.get("reward")
        rewards = (
            {str(name): last.as_number(f"reward.{name}", value) for name, value in reward.items()}
            if isinstance(reward, Mapping)
            else {REWARD: last.number_of("reward")}
        )
        group = last.identity("group_index")
        episodes.append(
            _Episode(
                (str(last.file), _as_text(last, "prompt") if group is None else group),
                replies,
                rewards,
                truncated=last.values.get("status") == "truncated",
                task=f"group {group}",
            )
        )
    return episodes, []


def _replies_from_response(row: _Row) -> list[_Reply]:
    tokens = row.integers("tokens")
    length = int(row.number_of("response_length"))
    if not 0 < length <= len(tokens):
        raise row.error("response_length", f"must be from 1 to the number of tokens, {len(tokens)}", length)
    response = tokens[-length:]
    mask = row.integers("loss_mask") if "loss_mask" in row else [1] * length
    if len(mask) != length:
        raise row.error("loss_mask", f"must have one entry per token of the response, {length}", len(mask))
    log_probabilities = row.numbers("rollout_log_probs") if "rollout_log_probs" in row else [0.0] * length
    if len(log_probabilities) != length:
        raise row.error(
            "rollout_log_probs", f"must have one number per token of the response, {length}", len(log_probabilities)
        )
    spans = [
        [place for place, _ in each] for sampled, each in groupby(enumerate(mask), lambda at: at[1] > 0) if sampled
    ]
    text = row.text("response") if len(spans) == 1 else ""
    replies = [
        _Reply("", text, [response[place] for place in places], [log_probabilities[place] for place in places])
        for places in spans
    ]
    if not replies:
        raise row.error("loss_mask", "must mark a token that was sampled", "no token")
    return [replace(replies[0], observation=_as_text(row, "prompt")), *replies[1:]]


_READERS: Mapping[RolloutFormat, Callable[[Sequence[_Row]], tuple[list[_Episode], list[str]]]] = {
    "messages": _read_messages,
    "trl": _read_trl,
    "verl": _read_verl,
    "prime-rl": _read_prime_rl,
    "slime": _read_slime,
}


def _imported(
    episodes: Sequence[_Episode], rollout_format: RolloutFormat, tokenizer: Tokenizer | None, notes: Sequence[str]
) -> Imported:
    """The episodes as trajectories: groups numbered in order, turn-level rewards at their turns, others at the last."""
    groups: dict[Hashable, int] = {}
    replicas: dict[int, int] = {}
    turn_reward_names = {name for episode in episodes for reply in episode.replies for name in reply.rewards}
    levels: dict[str, tuple[Literal["turn", "outcome"], float]] = {}
    trajectories = []
    exact = all(reply.tokens is not None for episode in episodes for reply in episode.replies)
    for episode in episodes:
        group = groups.setdefault(episode.group, len(groups))
        replica = replicas[group] = replicas.get(group, -1) + 1
        *earlier, last = episode.replies
        outcome = {
            f"episode's {name}" if name in turn_reward_names else name: each for name, each in episode.rewards.items()
        }
        for name in last.rewards.keys() | {name for reply in earlier for name in reply.rewards}:
            levels.setdefault(name, ("turn", 1.0))
        for name, source_name in zip(outcome, episode.rewards, strict=True):
            levels.setdefault(name, ("outcome", episode.weights.get(source_name, 1.0)))
        replies = [*earlier, replace(last, rewards={**last.rewards, **outcome})]
        trajectories.append(
            Trajectory(
                task=Task(rollout_format, episode.task or f"group {group + 1}", "train", group, tags={}),
                group=group,
                replica=replica,
                turns=tuple(_turn(reply, exact, tokenizer) for reply in replies),
                ending=Ending.TURN_LIMIT if episode.truncated else Ending.FAILURE,
                final_observation=episode.final,
            )
        )
    length_measure = EXACT if exact else WORDS if tokenizer is None else TOKENIZED
    reward_levels = dict(sorted(levels.items()))
    return Imported(trajectories, rollout_format, reward_levels, length_measure, list(notes))


def _turn(reply: _Reply, exact: bool, tokenizer: Tokenizer | None) -> Turn:
    if exact:
        assert reply.tokens is not None, "all replies have tokens"
        tokens: Sequence[int] = reply.tokens
        if not reply.text and tokenizer is not None:
            reply = replace(reply, text=tokenizer.decode(list(tokens), skip_special_tokens=False))
    else:
        # Words have no numbers: what is counted is their number. A reply of none has its end.
        encoded = None if tokenizer is None else tokenizer.encode(reply.text, add_special_tokens=False)
        tokens = [0] * len(reply.text.split()) if encoded is None else encoded.ids
    tokens = tokens or [0]
    return Turn(
        observation=reply.observation,
        observation_tokens=(),
        reply=reply.text,
        reply_tokens=tuple(tokens),
        log_probabilities=tuple(reply.log_probabilities or [0.0] * len(tokens)),
        rewards=reply.rewards,
        state=reply.observation or None,
        opens_segment=reply.opens_segment,
    )
