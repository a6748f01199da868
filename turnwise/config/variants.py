"""Checks of an ablation's variants: they must differ, and may change only settings that are not shared and are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from turnwise.config.optimization import Optimization
from turnwise.config.quantities import NAME, NAME_RULE
from turnwise.config.schema import BESIDE_RESULTS, Ablation, Credit
from turnwise.errors import ConfigurationError


class VariedExperiment(Protocol):
    """The interface of an experiment that these checks need, implemented by `turnwise.experiment.Experiment`."""

    @property
    def ablation(self) -> Ablation:
        """The variants and seeds to compare."""

    @property
    def credit(self) -> Credit:
        """The credit rule."""

    @property
    def optimization(self) -> Optimization:
        """The optimization section."""

    @property
    def variants(self) -> dict[str, dict[str, Any]]:
        """The changes of each variant, by its name."""

    @property
    def has_critic(self) -> bool:
        """Whether the advantage estimator needs a critic's state values."""

    def variant(self, name: str) -> VariedExperiment:
        """The experiment with one variant's changes. Raises ConfigurationError."""

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        """All values, in `mode="json"` as JSON types."""


SHARED = ("world", "agent", "data", "policy", "warm_start", "evaluation", "ablation", *BESIDE_RESULTS)
"""Sections that a variant cannot change, since all variants of an ablation share the artifacts made from them."""
UNREAD: Mapping[str, tuple[str, ...]] = {
    "reinforcement": ("evolution",),
    "evolution": ("credit", "critic", "selection"),
}
"""Sections that each method of optimization does not read, so that its variants cannot change them."""


def require_distinct_variants(experiment: VariedExperiment) -> None:
    """Raise ConfigurationError for a variant that changes nothing, equals another, or is invalid.

    An empty entry (`name: {}`) is allowed: it is the base itself.
    """
    ablation = experiment.ablation
    if not ablation.variants or not ablation.all_seeds:
        raise ConfigurationError(
            "ablation.variants and ablation.seeds must each name at least one; found none", "TW-no-variants"
        )
    if len(set(ablation.all_seeds)) < len(ablation.all_seeds):
        raise ConfigurationError(
            f"ablation.seeds must differ from each other; found {ablation.seeds}", "TW-repeated-seeds"
        )
    if len(ablation.variants) == 1 and ablation.until is not None and ablation.until.compare == "pairs":
        raise ConfigurationError(
            "ablation.seeds.compare must be warm-start where there is one variant, which has no pair; found pairs",
            "TW-missing-pair",
        )
    base = experiment.model_dump(mode="json")
    seen: dict[str, str] = {}
    for name in ablation.variants:
        if not NAME.fullmatch(name):
            raise ConfigurationError(f"a variant's name {NAME_RULE}; found {name!r}", "TW-name-form")
        try:
            variant = experiment.variant(name)
        except ConfigurationError as error:
            raise ConfigurationError(f"variant {name!r}: {error}") from None
        _require_own_sections(name, experiment.variants[name], variant)
        values = variant.model_dump(mode="json")
        if experiment.variants[name] and values == base:
            raise ConfigurationError(
                f"variant {name!r} must change something; variants.{name} repeats the base's values",
                "TW-changes-nothing",
            )
        key = repr(values)
        if key in seen:
            raise ConfigurationError(
                f"variants must differ; {name!r} is the same as {seen[key]!r}", "TW-repeated-variants"
            )
        seen[key] = name


def _require_own_sections(name: str, changes: Mapping[str, object], variant: VariedExperiment) -> None:
    """Raise ConfigurationError where a variant changes a section that it does not use, or that all variants share."""
    if "critic" in changes and not variant.has_critic:
        raise ConfigurationError(
            f"variant {name!r} sets critic, which its estimator {variant.credit.estimator!r} has not: only those of "
            "the GAE family have one",
            "TW-no-critic",
        )
    method = variant.optimization.method
    for section in (section for section in UNREAD[method] if section in changes):
        raise ConfigurationError(
            f"variant {name!r} must not change {section}, which optimization.method: {method} does not read",
            "TW-variant-unread",
        )
    compute = changes.get("compute")
    if isinstance(compute, Mapping) and "runner" in compute:
        raise ConfigurationError(
            f"variant {name!r} must not change compute.runner: whoever makes the runs of an ablation makes all of them",
            "TW-variant-shared",
        )
    for section in (section for section in SHARED if section in changes):
        raise ConfigurationError(
            f"variant {name!r} must not change {section}: what is prepared is shared by all variants; compare such "
            "settings as ablations of their own",
            "TW-variant-shared",
        )
