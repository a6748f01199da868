"""A judge as a reward: a language model behind an OpenAI-compatible endpoint reads an episode and gives it a number.

    rewards:
      helpful:
        level: outcome
        weight: 1.0
        function: judge
        options:
          address: "http://127.0.0.1:8000/v1"
          model: some-model
          prompt: prompts/helpful.txt
          highest: 10.0
          maximum_calls: 5000

The prompt is a file with `{transcript}` in it, where the episode's observations and replies are put; it should end by
asking for one number from `lowest` to `highest`, of which the last one in the answer counts. The reward is that number
as a share of the range, 0 to 1.

**Answers are kept by content**, in the project's home: a judge that was asked the same is not asked again, so that runs
repeat, whatever it would answer now, and cost nothing. `maximum_calls` bounds the cost: so many answers may be asked
for in all of this judge's runs in this home, of at most `maximum_tokens` each.

**A failure is missing data.** A judge that does not answer after its retries, or whose answer has no number in the
range, gives no reward of zero: the episode is lost (`RewardMissing`), and counted.

The replies of the policy are a part of what the judge reads. A policy that is trained on a judge learns to please it,
and may learn to talk it into a number: look at episodes (`turnwise show`), and compare with a reward that is checked.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import httpx
from pydantic import Field

from turnwise.agent.added_rewards import RewardFunction
from turnwise.data.trajectory import Trajectory
from turnwise.errors import ConfigurationError, RewardMissing
from turnwise.project import home, project_root
from turnwise.store.atomic_write import write_whole
from turnwise.store.digests import digest_of
from turnwise.world import http_address

PLACE = "{transcript}"
AT_ONCE = 8
SECONDS_BETWEEN_TRIES = 1.0
BUSY = 429
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")

Calls = Annotated[int, Field(ge=1, le=10_000_000)]
Tokens = Annotated[int, Field(ge=1, le=100_000)]
Retries = Annotated[int, Field(ge=0, le=10)]
Seconds = Annotated[float, Field(gt=0.0, le=3600.0)]
Bound = Annotated[float, Field(allow_inf_nan=False)]

_asking = threading.Lock()
_failed: dict[Path, int] = {}
"""Calls of this process that were made and not answered, by the folder of the judge's answers: they cost as well."""


def judged(
    trajectory: Trajectory,
    *,
    address: str,
    model: str,
    prompt: str,
    maximum_calls: Calls,
    lowest: Bound = 0.0,
    highest: Bound = 1.0,
    maximum_tokens: Tokens = 64,
    seconds: Seconds = 60.0,
    retries: Retries = 2,
    key_variable: str = "",
) -> float:
    """The judge's number for an episode, as a share of the range from `lowest` to `highest`.

    Args:
        trajectory: the episode.
        address: the endpoint, up to and including its `/v1`.
        model: the model's name at the endpoint; a part of what answers are kept by.
        prompt: the file of the prompt, from the project's folder.
        maximum_calls: how many answers may be asked for, in all runs of this home with this model and prompt.
        lowest: the number for the worst episode.
        highest: the number for the best one.
        maximum_tokens: the longest answer.
        seconds: the longest wait for an answer.
        retries: how often an unanswered call is made again.
        key_variable: the name of the environment variable that holds the endpoint's key; empty: it needs none.

    Raises:
        RewardMissing: the judge gave no answer, or none with a number in the range.
        ConfigurationError: `maximum_calls` is used up.
    """
    template = _template(prompt)
    request = {
        "model": model,
        "messages": [{"role": "user", "content": template.replace(PLACE, transcript(trajectory))}],
        "temperature": 0.0,
        "max_tokens": maximum_tokens,
    }
    folder = home() / "judge" / digest_of([model, template, maximum_tokens])
    answer_path = folder / f"{digest_of(request)}.json"
    if not answer_path.is_file():
        _require_budget(folder, maximum_calls)
        try:
            answer = _answer(address.rstrip("/"), request, _key(key_variable), seconds, retries)
        except RewardMissing:
            with _asking:
                _failed[folder] = _failed.get(folder, 0) + 1
            raise
        write_whole(answer_path, json.dumps({"request": request, "answer": answer}, ensure_ascii=False, indent=1))
    return _share(json.loads(answer_path.read_text(encoding="utf-8"))["answer"], lowest, highest)


def require_judge(*, address: str, prompt: str, lowest: float, highest: float, key_variable: str, **_: Any) -> None:
    """Raise ConfigurationError for options with which no judge can be asked. Nobody is asked."""
    try:
        http_address("options.address", address)
    except ValueError as error:
        raise ConfigurationError(str(error), "TW-address-form") from error
    if not lowest < highest:
        raise ConfigurationError(
            f"options.lowest must be below highest; found {lowest:g} and {highest:g}", "TW-reversed-bounds"
        )
    if PLACE not in _template(prompt):
        raise ConfigurationError(
            f"options.prompt must say where the episode goes, with {PLACE}; {prompt} does not", "TW-judge-prompt"
        )
    _key(key_variable)


judge = RewardFunction(judged, at_once=AT_ONCE, files=("prompt",), require=require_judge)


def transcript(trajectory: Trajectory) -> str:
    """The episode as text: what the policy was shown and what it replied, turn by turn, and how it ended."""
    lines = []
    for number, turn in enumerate(trajectory.turns, start=1):
        lines += [f"[turn {number}: observation]", turn.observation, f"[turn {number}: reply]", turn.reply]
    return "\n".join([*lines, "[the end]", trajectory.final_observation])


def _require_budget(folder: Path, maximum_calls: int) -> None:
    """Raise ConfigurationError where no further answer may be asked for. At most `AT_ONCE` calls more are under way."""
    answer_count = len(os.listdir(folder)) if folder.is_dir() else 0
    if answer_count + _failed.get(folder, 0) >= maximum_calls:
        raise ConfigurationError(
            f"a judge may be asked maximum_calls times; {maximum_calls} are used up, and the answers are kept in "
            f"{folder}: raise it and run again, which asks for nothing twice",
            "TW-judge-calls",
        )


def _template(prompt: str) -> str:
    return (project_root() / prompt).read_text(encoding="utf-8")


def _key(variable: str) -> str:
    if not variable:
        return ""
    if variable not in os.environ:
        raise ConfigurationError(
            f"options.key_variable must name an environment variable; {variable} is not set", "TW-unset-variable"
        )
    return os.environ[variable]


def _answer(address: str, request: dict[str, Any], key: str, seconds: float, retries: int) -> str:
    """The text of the endpoint's answer. Raises RewardMissing where there is none after the retries."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    failure = ""
    for attempt in range(retries + 1):
        if attempt:
            time.sleep(SECONDS_BETWEEN_TRIES * attempt)
        try:
            response = _client().post(f"{address}/chat/completions", json=request, headers=headers, timeout=seconds)
        except httpx.HTTPError as error:
            failure = f"{type(error).__name__}: {error}"
            continue
        if response.status_code == 200:
            return _text(response)
        failure = f"status {response.status_code}: {response.text[:200]}"
        if response.status_code < 500 and response.status_code != BUSY:
            break  # what is refused once is refused again
    raise RewardMissing(f"the judge at {address} must answer; found {failure}", "TW-silent-judge")


def _text(response: httpx.Response) -> str:
    try:
        text = response.json()["choices"][0]["message"]["content"]
    except (ValueError, LookupError, TypeError) as error:
        raise RewardMissing(
            f"a judge must answer as OpenAI's endpoint does; found {response.text[:200]!r}", "TW-judge-answer"
        ) from error
    if not isinstance(text, str):
        raise RewardMissing(f"a judge must answer with a text; found {text!r}", "TW-judge-answer")
    return text


def _share(answer: str, lowest: float, highest: float) -> float:
    numbers = NUMBER.findall(answer)
    if not numbers or not lowest <= float(numbers[-1]) <= highest:
        raise RewardMissing(
            f"a judge's answer must end with a number from {lowest:g} to {highest:g}; found {answer[-200:]!r}",
            "TW-judge-answer",
        )
    return (float(numbers[-1]) - lowest) / (highest - lowest)


@cache
def _client() -> httpx.Client:
    return httpx.Client()
