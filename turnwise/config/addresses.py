"""Types of the settings that are addresses: MLflow's tracking URI, a name of an experiment in it, a shared store."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

from turnwise.errors import ConfigurationError
from turnwise.suggestions import meant

SERVERS = ("http", "https")
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
_BUCKET = r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9_.-]+)*/?"
LONGEST_TITLE = 250
"""Most characters of a name that MLflow's databases keep."""


def _require_tracking_uri(uri: str) -> str:
    if not uri:
        return uri
    scheme = uri.partition(":")[0]
    dialect = scheme.partition("+")[0]
    if dialect not in (*SERVERS, *DATABASES) or "://" not in uri:
        raise ConfigurationError(
            "must be empty, a database such as sqlite:////absolute/mlflow.db or a server such as "
            f"http://127.0.0.1:5000, which begin with one of {', '.join((*DATABASES, *SERVERS))}"
            f"{meant(dialect, (*DATABASES, *SERVERS))}",
            "TW-address-form",
        )
    if dialect == "sqlite" and (not uri.startswith(f"{scheme}:///") or uri.endswith("/")):
        raise ConfigurationError(
            "a SQLite file is named with three slashes before its path, four where it begins at the root",
            "TW-address-form",
        )
    if dialect == "sqlite" and "/" in uri.partition("?")[2]:
        raise ConfigurationError(
            "ends its path at the first question mark: a path with one is written as sqlite:///file:/what%3F/mlflow.db?uri=true",
            "TW-address-form",
        )
    if dialect != "sqlite" and not _has_host(uri):
        raise ConfigurationError(
            "must name a host, and a port up to 65535 where it names one, without blanks", "TW-address-form"
        )
    return uri


def _has_host(uri: str) -> bool:
    try:
        parts = urlsplit(uri)
        return bool(parts.hostname) and parts.port != 0 and not any(each.isspace() for each in uri)
    except ValueError:
        return False


def _require_store_url(url: str) -> str:
    if not url or (url.startswith("/") and url.strip("/")):
        return url
    if not re.fullmatch(_BUCKET, url):
        raise ConfigurationError(
            "must be empty, an absolute folder such as /mnt/lab/turnwise, or s3://bucket/prefix of letters, digits and "
            "-_./ (keys, region and endpoint come from the environment: AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, ...)",
            "TW-address-form",
        )
    return url


def _require_title(title: str) -> str:
    if title != title.strip() or not title or len(title) > LONGEST_TITLE or not title.isprintable():
        raise ConfigurationError(
            f"must be 1 to {LONGEST_TITLE} characters that can be seen, with no blank at its beginning or end",
            "TW-name-form",
        )
    return title


def _require_model_name(name: str) -> str:
    if any(letter in _require_title(name) for letter in "/:") or name == "." or name.startswith(".."):
        raise ConfigurationError(
            "must be a name without / and :, and no path such as .., since it is part of addresses", "TW-name-form"
        )
    return name


TrackingUri = Annotated[str, AfterValidator(_require_tracking_uri)]
"""MLflow's tracking URI; empty for the home's own database."""
StoreUrl = Annotated[str, AfterValidator(_require_store_url)]
"""The address of a shared store; empty for none. It holds no credentials, since it is recorded."""
Title = Annotated[str, AfterValidator(_require_title)]
"""A name shown in MLflow; allows more characters than a folder's name (`quantities.Name`)."""
ModelName = Annotated[str, AfterValidator(_require_model_name)]
"""A name in MLflow's registry of models."""
