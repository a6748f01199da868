"""Prometheus metrics of the service, in a registry of their own."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CONTENT_TYPE = CONTENT_TYPE_LATEST
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the histograms' buckets, in seconds."""


class Metrics:
    """The metrics of one application."""

    def __init__(self) -> None:
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        prefix = "turnwise_service"
        self._registry = registry
        self.open = Gauge(f"{prefix}_episodes_open", "Episodes that are open", ["world"], registry=registry)
        self.created = Counter(f"{prefix}_episodes_created", "Episodes that were created", ["world"], registry=registry)
        self.freed = Counter(
            f"{prefix}_episodes_freed",
            "Episodes that were freed: closed, expired, or lost for a reason",
            ["world", "how"],
            registry=registry,
        )
        self.steps = Counter(f"{prefix}_steps", "Steps that were played", ["world"], registry=registry)
        self.repeated = Counter(
            f"{prefix}_steps_repeated",
            "Steps that were sent again and answered from the record",
            ["world"],
            registry=registry,
        )
        self.world_seconds = Histogram(
            f"{prefix}_world_seconds", "Seconds in the world, per call", ["world"], buckets=SECONDS, registry=registry
        )
        self.requests = Counter(f"{prefix}_requests", "Requests", ["route", "status"], registry=registry)
        self.request_seconds = Histogram(
            f"{prefix}_request_seconds", "Seconds per request", ["route"], buckets=SECONDS, registry=registry
        )

    def text(self) -> bytes:
        """All metrics, in Prometheus' text format."""
        return generate_latest(self._registry)


class RequestCounter:
    """Counts and times every request by its route, not by its address, to keep the number of labels small."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and record it."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        status = 500
        began = time.perf_counter()

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            route = getattr(scope.get("route"), "path", "none")
            self._metrics.requests.labels(route, status).inc()
            self._metrics.request_seconds.labels(route).observe(time.perf_counter() - began)
        return None
