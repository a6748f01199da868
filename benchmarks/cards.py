"""64 cards on one Prefect server, one MLflow database and one store: where they saturate. Writes docs/performance.md.

    python -m benchmarks.shared_parts      counts what an iteration costs them; minutes
    python -m benchmarks.cards             simulates; at once

Every run goes round: it computes an iteration, which disturbs nobody, and asks each shared part, which serves one run
after the other. That is a closed network of queues, and exact mean-value analysis (Reiser and Lavenberg 1980) gives its
throughput. With Z the seconds of an iteration outside of the queues, D_k the seconds that part k works for one, and N
runs at once,

    R_k(N) = D_k (1 + Q_k(N - 1))      X(N) = N / (Z + sum_k R_k(N))      Q_k(N) = X(N) R_k(N)

X(N) D_k is the share of its time that part k works. Beyond N* = (Z + sum_k D_k) / max_k D_k runs the slowest part
decides.

What an iteration costs is counted, see `benchmarks.shared_parts`; all else are assumptions, which the page lists.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.shared_parts import FOUND, TINY
from turnwise.experiment import load
from turnwise.policy.dimensions import dimensions_of
from turnwise.policy.sizes import count

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- made by python -m benchmarks.cards -->", "<!-- end of what benchmarks.cards makes -->"
CARDS = 64
COLUMNS = (
    f"runs on {CARDS} cards",
    "at once",
    "computes, s",
    "uploads",
    "an iteration takes, s",
    "Prefect",
    "MLflow",
    "requests",
    "bytes",
    "saturates at cards",
)
HEAD = f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}"
OF_MACHINE = 8


@dataclass(frozen=True)
class Assumption:
    """A number that was not measured here."""

    value: float
    quantity: str
    whence: str


ASSUMED: Mapping[str, Assumption] = {
    "trajectories": Assumption(128, "trajectories of an iteration", "RAGEN: 8 prompts x 16"),
    "tokens": Assumption(3000, "tokens of a trajectory, at the end", "ten turns"),
    "replies": Assumption(800, "of them sampled, one after the other", "ten replies of 80"),
    "bandwidth": Assumption(0.5 * 3.35e12, "bytes/s that sampling reads weights with", "half of an H100's memory"),
    "step": Assumption(0.005, "seconds of an engine's step besides", "vLLM's own Python; its kernels are CUDA graphs"),
    "arithmetic": Assumption(0.4 * 989e12, "operations/s of a card that trains", "40 % of an H100's in bfloat16"),
    "other": Assumption(5.0, "seconds of all else in an iteration", "worlds, files, metrics"),
    "stream": Assumption(1e9, "bytes/s of one process that uploads", "parts of an object at once, over TLS"),
    "network": Assumption(10e9, "bytes/s of a machine of 8 cards", "80 % of 100 Gbit/s"),
    "store": Assumption(20e9, "bytes/s that the store takes in all", "an object store of four machines"),
    "PUT": Assumption(3500, "writing requests/s that the store takes", "Amazon S3's limit for a prefix"),
    "GET": Assumption(5500, "reading requests/s that it takes", "the same"),
    "Prefect": Assumption(200, "changes of state/s that a Prefect server takes", "one process, 5 ms each"),
    "MLflow": Assumption(5000, "rows/s that MLflow's PostgreSQL takes", "0.2 ms each"),
}


@dataclass(frozen=True)
class Case:
    """Runs of one kind on all cards."""

    name: str
    weights: float
    cards: int
    """Of one run."""
    bytes_per_weight: float
    """Of what an iteration uploads: weights and moments."""
    variation: str = "as it is"

    @property
    def runs(self) -> int:
        """Runs at once."""
        return CARDS // self.cards

    @property
    def compute_seconds(self) -> float:
        """Seconds in which a run computes an iteration."""
        a = {name: each.value for name, each in ASSUMED.items()}
        sampling = a["replies"] * (2 * self.weights / a["bandwidth"] + a["step"])
        # Forward and backward of the update, 6 operations for a weight and token, and 2 of the scoring before it.
        training = 8 * self.weights * a["trajectories"] * a["tokens"] / (a["arithmetic"] * self.cards)
        return sampling + training + a["other"]

    @property
    def uploaded(self) -> float:
        """Bytes of an iteration's policy."""
        return self.weights * self.bytes_per_weight

    @property
    def upload_seconds(self) -> float:
        """Seconds in which a run uploads its policy, as fast as itself and its machine can."""
        on_machine = max(1, OF_MACHINE // self.cards)
        return self.uploaded / min(ASSUMED["stream"].value, ASSUMED["network"].value / on_machine)


def demands(case: Case, counts: Mapping[str, float]) -> dict[str, float]:
    """The seconds that each shared part works for an iteration."""
    return {
        "Prefect's server": counts["Prefect events"] / ASSUMED["Prefect"].value,
        "MLflow's database": counts["MLflow rows"] / ASSUMED["MLflow"].value,
        "the store's requests": counts["PUT requests"] / ASSUMED["PUT"].value
        + counts["GET requests"] / ASSUMED["GET"].value,
        "the store's bytes": (case.uploaded + counts["bytes, other"]) / ASSUMED["store"].value,
    }


def throughput(outside: float, demand: Sequence[float], runs: int) -> float:
    """X(runs), in iterations a second: see the module."""
    queued = [0.0] * len(demand)
    rate = 0.0
    for number in range(1, runs + 1):
        seconds = [each * (1 + before) for each, before in zip(demand, queued, strict=True)]
        rate = number / (outside + sum(seconds))
        queued = [rate * each for each in seconds]
    return rate


def cases(bytes_per_weight: float) -> Iterator[Case]:
    """Both sizes as they are, and with what may be changed."""
    small = Case("0.5B", 0.494e9, 1, bytes_per_weight)
    large = Case("7B", 7.62e9, 8, bytes_per_weight)
    adapter = 0.005 * bytes_per_weight
    yield small
    yield replace(small, variation="`compute.moments: 8-bit`", bytes_per_weight=bytes_per_weight / 2)
    yield replace(small, variation="`optimization.adapter`", bytes_per_weight=adapter)
    yield large
    yield replace(large, variation="`optimization.adapter`, a card for each run", cards=1, bytes_per_weight=adapter)
    for case in (small, large):
        yield replace(case, variation="each tenth policy uploaded: not there", bytes_per_weight=bytes_per_weight / 10)


def row(case: Case, counts: Mapping[str, float]) -> str:
    """What the simulation says of a case, as a row of the table."""
    demand, outside = demands(case, counts), case.compute_seconds + case.upload_seconds
    rate = throughput(outside, list(demand.values()), case.runs)
    slowest = max(demand, key=lambda name: demand[name])
    most = (outside + sum(demand.values())) / demand[slowest] * case.cards
    shares = " | ".join(f"{rate * each:.0%}" for each in demand.values())
    return (
        f"| {case.name}, {case.variation} | {case.runs} | {case.compute_seconds:.0f} | {case.uploaded / 1e9:,.2g} GB, "
        f"{case.upload_seconds:.0f} s | {case.runs / rate:.0f} | {shares} | {most:,.0f}, {slowest} |"
    )


def page(counts: Mapping[str, float], bytes_per_weight: float) -> str:
    """The part of the page between its marks."""
    costs = "\n".join(f"| {name} | {number:,.1f} |" for name, number in counts.items())
    assumed = "\n".join(f"| {each.quantity} | {each.value:,.4g} | {each.whence} |" for each in ASSUMED.values())
    rows = "\n".join(row(case, counts) for case in cases(bytes_per_weight))
    return f"""{BEGIN}

Counted on a run of the tests' tiny experiment with its store on S3, whose policy is evaluated in every iteration:

| what an iteration costs the shared parts | |
|---|---|
{costs}

Its policy takes {bytes_per_weight:.1f} bytes for each weight: 4 of the weight, 8 of AdamW's moments, and the headers of
small files. Rows and requests are those of any policy; the other bytes are of short episodes, and would be megabytes.
What follows is computed from these counts and from what is assumed below; nobody has run it.

{HEAD}
{rows}

*Computes* is an iteration without its upload. *Prefect* to *bytes* are the shares of their time that the shared parts
work. *Saturates* is the number of cards beyond which more runs are no faster together, and the part that decides.

| assumed | | whence |
|---|---|---|
{assumed}

{END}"""


def policy_bytes_per_weight(counts: Mapping[str, float]) -> float:
    """Bytes of the counted run's policy for each of its weights."""
    dimensions = dimensions_of(load(ROOT / "params.yaml", [TINY]).policy)
    assert dimensions is not None
    return counts["bytes, policy"] / count(dimensions.shapes)


def main() -> None:
    """Simulate, and write the page's part."""
    counts = json.loads(FOUND.read_text(encoding="utf-8"))
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(before + page(counts, policy_bytes_per_weight(counts)) + after, encoding="utf-8")
    print(page(counts, policy_bytes_per_weight(counts)))


if __name__ == "__main__":
    main()
