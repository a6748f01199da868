"""Pretrained policies: a base policy, a directory in Hugging Face's layout, a GGUF, or a repository on the hub.

A base policy is a folder of this package (`BASE_POLICIES`), made by `turnwise pretrain` and named without a path.

A directory is identified by a digest of its files, a GGUF by that of the file, a repository by the commit that its
revision names. A revision that this machine has downloaded before is resolved in the hub's local cache; only another
one asks the hub, where HF_HUB_OFFLINE allows it. So a cached experiment runs without a network, and a branch that has
moved on the hub does not change results by itself.
"""

from __future__ import annotations

import os
import re
from fnmatch import fnmatch
from pathlib import Path

from turnwise.config.schema import Policy
from turnwise.errors import ConfigurationError
from turnwise.policy.gguf_sources import is_gguf, known_gguf
from turnwise.policy.weight_files import require_weights_form
from turnwise.project import project_root
from turnwise.store.plugin_identity import Outside, outside_files

BASE_POLICIES = Path(__file__).parent / "base"
"""The folder of the base policies, one folder each."""
NOT_READ = (
    ".*",
    "*.md",
    "LICENSE*",
    *("*.bin", "*.ckpt", "*.gguf", "*.h5", "*.msgpack", "*.onnx", "*.ot", "*.pt", "*.pth"),
    *("onnx/*", "original/*", "optimizer*.safetensors", "consolidated*.safetensors"),
)
"""Patterns of ignored files: documents, optimizer states, and weights in other formats. All other files are part of the
policy, since a tokenizer may read any file."""
TEMPLATES = "additional_chat_templates"


def base_policies() -> list[str]:
    """The names of the base policies in this package, sorted."""
    return sorted(path.parent.name for path in BASE_POLICIES.glob("*/config.json"))


def pretrained(policy: Policy) -> Outside | None:
    """The model that `policy.model` and `policy.revision` name, with its digest or commit; None for one from scratch.

    Raises ConfigurationError for a repository or revision that cannot be found, and for a directory with a revision.
    """
    if policy.model == "scratch":
        return None
    if policy.revision is not None and not asks_hub(policy.model):
        here = f"GGUF {policy.model}" if is_gguf(policy.model) else f"directory {model_directory(policy.model)}"
        raise ConfigurationError(
            f"policy.revision is one of a hub repository; policy.model is the {here}, which has none: leave it out",
            "TW-revision-without-hub",
        )
    return known_gguf(policy.model) if is_gguf(policy.model) else outside_model(policy.model, policy.revision)


def outside_model(model: str, revision: str | None = None, key: str = "policy.model") -> Outside:
    """The model of this name, a directory or a repository, with its digest or commit; `key` is where it is named.

    Raises ConfigurationError for a repository or revision that cannot be found.
    """
    folder = model_directory(model)
    if folder is None:
        return Outside(place=model, content=_commit(model, revision, key))
    return outside_files(folder, _files(folder))


def asks_hub(model: str) -> bool:
    """Whether `policy.model` names a repository on the hub, and nothing that is on this machine or in a wheel."""
    return model != "scratch" and not is_gguf(model) and model_directory(model) is None


def is_commit(content: str) -> bool:
    """Whether the content of a policy from outside is a commit of a hub's repository, and not a directory's digest."""
    return re.fullmatch("[0-9a-f]{40}", content) is not None


def pretrained_folder(source: Outside) -> Path:
    """A folder with the policy's files, downloaded where they are not on this machine yet.

    Raises ConfigurationError where they cannot be downloaded, or the folder holds no whole weights in safetensors.
    """
    folder = model_directory(source.place)
    if folder is None:
        folder = _snapshot(source)
    require_weights_form(folder, source.place)
    return folder


def require_unchanged(source: Outside) -> None:
    """Raise ConfigurationError where a directory's files have changed since `source` was made for the cache key."""
    folder = model_directory(source.place)
    if folder is not None and outside_files(folder, _files(folder)) != source:
        raise ConfigurationError(
            f"policy.model must not change while it is read; {folder} has: run again", "TW-changed-file"
        )


def model_directory(model: str) -> Path | None:
    """The directory of this name: a base policy, or relative to the project's folder; None where there is none, as for
    a hub id. A folder of the project that bears a base policy's name is meant by `./NAME`.
    """
    if model in base_policies():
        return BASE_POLICIES / model
    folder = Path(model).expanduser()
    folder = folder if folder.is_absolute() else project_root() / folder
    return folder if os.path.isdir(folder) else None  # os.path: False, not an error, for a name that is too long


def _files(folder: Path) -> list[Path]:
    files = [path for path in (*folder.iterdir(), *folder.glob(f"{TEMPLATES}/*.jinja")) if path.is_file()]
    return sorted(path for path in files if not any(fnmatch(path.name, pattern) for pattern in NOT_READ))


def _commit(model: str, revision: str | None, key: str) -> str:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RevisionResolutionError

    try:
        try:
            commit = HfApi().resolve_revision(model, revision=revision, local_files_only=True)
        except RevisionResolutionError:
            commit = HfApi().resolve_revision(model, revision=revision)
    except (OSError, ValueError, RevisionResolutionError) as error:
        version = f"revision {revision!r}" if revision else "main branch"
        scratch = "'scratch', " if key == "policy.model" else ""
        raise ConfigurationError(
            f"{key} must be {scratch}a directory, or a hub id whose {version} is in the local cache or can be asked "
            f"for; found {model!r}: {error}",
            "TW-unknown-model",
        ) from error
    return commit.resolved


def _snapshot(source: Outside) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(source.place, revision=source.content, ignore_patterns=list(NOT_READ)))
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"policy.model {source.place!r} must be in the hub's local cache or be downloadable at its commit "
            f"{source.content}; {error}",
            "TW-download-failed",
        ) from error
