"""The store of artifacts: what stages read and write, named by the digest of its content."""

from turnwise.store.artifacts import Store, default_store
from turnwise.store.manifest import MANIFEST, Draft, Manifest, Reference

__all__ = ["MANIFEST", "Draft", "Manifest", "Reference", "Store", "default_store"]
