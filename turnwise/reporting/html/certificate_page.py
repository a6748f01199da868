"""A world's certificate as one offline page, beside its data as JSON."""

from __future__ import annotations

from pathlib import Path

from turnwise.checking.certificate import Certificate
from turnwise.reporting.html.rendering import render
from turnwise.store.atomic_write import write_whole

CERTIFICATE_FILES = ("certificate.json", "certificate.html")


def write_certificate(certificate: Certificate, folder: Path) -> None:
    """Write `CERTIFICATE_FILES` into a folder, which is made where it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in zip(CERTIFICATE_FILES, (certificate.json(), certificate_page(certificate)), strict=True):
        write_whole(folder / name, text)


def certificate_page(certificate: Certificate) -> str:
    """The page as HTML text."""
    return render(
        "certificate.html.jinja",
        title=f"Certificate of the world {certificate.world}",
        certificate=certificate,
        baselines=[(score.baseline, "", score) for score in certificate.scores],
        probed=[
            (probe.name, f"{probe.does}{': earns more than random' if probe.pays else ''}", probe.score)
            for probe in certificate.probes
        ],
    )
