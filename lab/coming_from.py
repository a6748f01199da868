"""The page `docs/coming-from.md`, from the table of other systems' names.

`python -m lab.coming_from > docs/coming-from.md` writes it.
"""

from __future__ import annotations

from turnwise.config.peer_names import PAPERS, SYSTEMS, PeerName, peer_names

HEAD = """# Coming from another system

What verl, TRL, OpenRLHF, SkyRL, AReaL, prime-rl, ROLL and verl-agent call the settings of `params.yaml`. Equations were
compared, not names: what still differs stands in the last column. `x` is a value of yours. A name of theirs that you
write into `params.yaml` is answered from this table. Read in verl 0.9.1, TRL 1.16.0, OpenRLHF 3c3be623, SkyRL
a9564572e, AReaL cbff54d64, prime-rl 559b44772, ROLL 8eb27cc2 and verl-agent 20bd331.

`tests/parity/` calls TRL's and verl's own functions beside ours on random batches, values and gradients.
`python -m lab.coming_from > docs/coming-from.md` makes this page, from `turnwise/config/peer_names.json`.
"""

WHEREVER = (
    (
        "dual clip",
        "verl: 3.0, always on for negative advantages; SkyRL, OpenRLHF, AReaL, TRL: off unless set",
        "off unless `optimization.dual_clip` is set",
    ),
    (
        "epsilon added to a group's deviation",
        "verl, SkyRL, RAGEN 1e-6; TRL, MT-GRPO 1e-4; OpenRLHF 1e-9",
        "`credit.options.epsilon`; each rule has its paper's: `grpo` and `mt-grpo` MT-GRPO's 1e-4, `gigpo` 1e-6",
    ),
    (
        "whitening",
        "verl, SkyRL: unbiased deviation; OpenRLHF: the population's, a factor sqrt(n / (n - 1))",
        "unbiased deviation",
    ),
    (
        "k3 above 10",
        "verl, SkyRL, ROLL: held at 10, without a gradient; OpenRLHF: every estimator; TRL: as it is",
        "as it is, unless `optimization.reference.clamp` is set",
    ),
    ("log ratio", "verl, SkyRL, OpenRLHF: clamped to 20 nats; TRL: not", "clamped to 20 nats"),
    (
        "entropy bonus",
        "TRL: mean over all tokens, whatever the aggregation; verl: weighted as the loss",
        "weighted as the loss",
    ),
    ("GiGPO's episode statistics", "the release counts every step; the paper each trajectory", "each trajectory"),
    (
        "MT-GRPO, a trajectory of one turn",
        "the release normalises turn reward and outcome together",
        "apart, as for those of two turns",
    ),
    ("RAGEN-2's cumulative filter", "the release stops at 0.9 x sum - 0.01", "at 0.9 x sum"),
)
"""What differs between systems, what others do, and what is done here."""


def page() -> str:
    """The page as Markdown."""
    general = "\n".join(f"| {what} | {others} | {here} |" for what, others, here in WHEREVER)
    parts = [HEAD, f"\n## What differs wherever you come from\n\n| | others | here |\n|---|---|---|\n{general}\n"]
    for system in SYSTEMS:
        rows = [row for row in peer_names() if row.system == system]
        title = "By the names of papers" if system == PAPERS else system
        lines = "\n".join(_line(row) for row in rows)
        theirs = "paper" if system == PAPERS else f"in {system}"
        parts.append(f"\n## {title}\n\n| {theirs} | here | what differs |\n|---|---|---|\n{lines}\n")
    return "".join(parts)


def _line(row: PeerName) -> str:
    theirs = row.key if row.system == PAPERS else f"`{row.key}: {row.value}`"
    ours = ", ".join(f"`{setting}`" for setting in row.each_setting()) or "(none)"
    return f"| {theirs} | {ours} | {row.differs} |"


if __name__ == "__main__":
    print(page(), end="")
