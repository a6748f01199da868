"""Reproduction: comparison of a recorded run with its repetition, to find the first difference and its cause.

A run is a sequence of artifacts, each named by the digest of its content. With both sequences in the order in which
they were made, the first pair that differs is where to look, since everything after it had other inputs. The same
parameters and code give the same digests on the same platform; on another platform the last bits differ, and from them
the sampled tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from turnwise.store import Reference
from turnwise.tracking.finding import RunArtifacts
from turnwise.world import SPLITS

INGREDIENTS = ("stage", "code", "parameters", "inputs", "platform")

UNEXPLAINED = "nothing explains it: parameters, code and platform are the same"
INEXACT = "figures may differ in the second decimal"


@dataclass(frozen=True)
class ReproducedArtifact:
    """One artifact of a run, as recorded and as reproduced."""

    name: str
    """The iteration and the role of the artifact, e.g. `iteration 3: rollout`."""
    recorded: Reference | None
    """None where only the repetition has it."""
    again: Reference | None
    """None where only the recorded run has it."""

    @property
    def equal(self) -> bool:
        """Whether both are the same, digest for digest."""
        return self.recorded == self.again


def steps(recorded: RunArtifacts, again: RunArtifacts) -> list[ReproducedArtifact]:
    """Pairs of the artifacts of two runs, in the order in which they were made; None where a run lacks one."""
    first, second = dict(_named_references(recorded)), dict(_named_references(again))
    return [ReproducedArtifact(name, first.get(name), second.get(name)) for name in dict.fromkeys([*first, *second])]


def first_difference(artifacts: list[ReproducedArtifact]) -> ReproducedArtifact | None:
    """The earliest artifact that differs; None where all are equal."""
    return next((step for step in artifacts if not step.equal), None)


def differing_ingredients(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The dotted keys at which two provenance records of one step differ: stage, code, parameters, inputs, platform."""
    return [path for name in INGREDIENTS for path, _, _ in _differing(one.get(name), other.get(name), name)]


def why_different(former: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """A sentence on why the same parameters gave different results, from the `code` and `platform` of both records.

    Keys that either record lacks are reported as unknown.
    """
    if unknown := [name for name in ("parameters", "code", "platform") if name not in former or name not in now]:
        return f"made with {', '.join(unknown)} unknown; on another platform {INEXACT}"
    reasons = platform_differences(former["platform"] or {}, now["platform"] or {})
    if former["code"] != now["code"]:
        return "; ".join(["made by other code", *reasons])
    return f"{'; '.join(reasons)}: {INEXACT}" if reasons else UNEXPLAINED


def platform_differences(former: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The differences of two platforms (`turnwise.store.run_environment.platform`), one phrase each."""
    one, other = ({"vendor": "", "flags": [], **platform.get("processor", {})} for platform in (former, now))
    differences = []
    if missing_flags := set(one["flags"]) - set(other["flags"]):
        differences.append(f"made on a processor with {_foundation(missing_flags)}; this one has none")
    if new_flags := set(other["flags"]) - set(one["flags"]):
        differences.append(f"made on a processor without {_foundation(new_flags)}; this one has it")
    if one["vendor"] != other["vendor"]:
        differences.append(f"made on a processor of {one['vendor']}; this one is of {other['vendor']}")
    for name in dict.fromkeys([*former, *now]):
        for path, then, here in _differing(former.get(name), now.get(name), name) if name != "processor" else ():
            differences.append(f"made with {path} {_format_value(then)}; here it is {_format_value(here)}")
    return differences


def _foundation(flags: set[str]) -> str:
    """CPU flags in words; `avx512f` alone where it is among them, since all other AVX-512 flags require it."""
    return "avx512f" if "avx512f" in flags else " and ".join(sorted(flags))


def _format_value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "absent" if value is None else str(value)


def _named_references(run: RunArtifacts) -> Iterator[tuple[str, Reference]]:
    order = (*(f"{split}_task_set" for split in SPLITS), "demonstrations", "tokenizer", "warm_start")
    yield from ((name, run.prepared[name]) for name in order if name in run.prepared)
    yield "start: evaluation", run.start
    if run.start_at_horizon is not None:
        yield "start: evaluation at the horizon", run.start_at_horizon
    for number, outputs in enumerate(run.iterations, start=1):
        yield from ((f"iteration {number}: {name}", reference) for name, reference in outputs.items())
    if run.test is not None:
        yield "test: evaluation", run.test
    if run.test_at_horizon is not None:
        yield "test: evaluation at the horizon", run.test_at_horizon


def _differing(one: Any, other: Any, path: str) -> list[tuple[str, Any, Any]]:
    """The differing leaves of two nested mappings, with their dotted key; where one lacks a key it counts as None."""
    if one == other:
        return []
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        keys = dict.fromkeys([*one, *other])
        return [leaf for key in keys for leaf in _differing(one.get(key), other.get(key), f"{path}.{key}")]
    return [(path, one, other)]
