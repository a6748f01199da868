"""The artifact store: the content-addressed folders that stages read and write."""

from turnwise.store.artifacts import Store
from turnwise.store.default import default_store
from turnwise.store.manifest import MANIFEST, Draft, Manifest, Reference

__all__ = ["MANIFEST", "Draft", "Manifest", "Reference", "Store", "default_store"]
