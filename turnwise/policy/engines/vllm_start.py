"""How vLLM is imported and started within a process that computes other things, too.

It is imported with the environment that the engine here needs, and while it starts it neither writes to the terminal
nor changes what others use.
"""

from __future__ import annotations

import gc
import io
import logging
import os
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, redirect_stderr
from typing import Any

import torch

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CONFIGURE_LOGGING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_PLUGINS": "",
    "HF_HUB_OFFLINE": "1",
}
"""Environment variables that vLLM reads on import. A user's setting wins, except for the first: this engine needs it.

`VLLM_CONFIGURE_LOGGING` is off because vLLM would configure the logging of the whole process, which closes all existing
handlers: Prefect's, which sends a run's log to its server, would wait five seconds and then be gone.
"""

UNCOMPILED = "TORCH_COMPILE_DISABLE"


@contextmanager
def restricted_to_torchs_kernels() -> Iterator[None]:
    """Within the block, vLLM computes with AVX2 where torch is restricted to it (ATEN_CPU_CAPABILITY=avx2).

    vLLM chooses its kernels by `torch.cpu.get_capabilities`, which reports the processor's and ignores the variable: it
    asks as it starts, loads weights and computes. What else asks in this process is answered as before.
    """
    if torch.backends.cpu.get_cpu_capability() != "AVX2":
        yield
        return
    capabilities = torch.cpu.get_capabilities
    usable = {name: has and not name.startswith(("avx512", "amx")) for name, has in capabilities().items()}
    torch.cpu.get_capabilities = lambda: usable  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.cpu.get_capabilities = capabilities


def import_vllm() -> Any:
    """Import vLLM with the environment that this engine needs, and return its class `LLM`."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    # This variable would override kv_cache_memory_bytes, and is in whole gigabytes.
    os.environ.pop("VLLM_CPU_KVCACHE_SPACE", None)
    # vLLM collects garbage five times while it starts, over the 800,000 objects that its imports left. The collector
    # skips frozen objects, which halves the time of the start.
    collecting = gc.isenabled()
    gc.disable()
    from vllm import LLM

    logging.getLogger("vllm").setLevel(os.environ["VLLM_LOGGING_LEVEL"].upper())
    _forget_callers()
    gc.collect()
    gc.freeze()
    if collecting:
        gc.enable()
    return LLM


def _forget_callers() -> None:
    """Drop the tracebacks of errors that vLLM's modules keep, such as that of torchcodec, which is not installed.

    A traceback keeps the frames of all who wait for the import, with what they hold: the learner of a warm start, 1.5
    GiB of a model of 135 million parameters, would stay until the process ends. Others (trio's) are in circles, which
    are collected before what is there is frozen.
    """
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "vllm":
            for value in list(vars(module).values()):
                if isinstance(value, BaseException):
                    value.__traceback__ = None


@contextmanager
def starting_uncompiled() -> Iterator[None]:
    """Have vLLM, which starts within the block, plan no compilation; neither do the workers that it starts.

    It asks for this variable alone. Other processes that this one starts later may compile.
    """
    before = os.environ.get(UNCOMPILED)
    os.environ[UNCOMPILED] = "1"
    try:
        with uncompiled():
            yield
    finally:
        os.environ.pop(UNCOMPILED)
        if before is not None:
            os.environ[UNCOMPILED] = before


def uncompiled() -> AbstractContextManager[None]:
    """Within the block, functions that torch would compile run as they are; those of others are compiled afterwards."""
    return torch.compiler.set_stance("force_eager")


@contextmanager
def threads_unpatched() -> Iterator[None]:
    """Restore torch.set_num_threads, which vLLM's CPU worker replaces by a function that does nothing.

    Otherwise the learner in the same process would silently compute with the engine's number of threads, but with its
    own where no engine was started: two results for one computation.
    """
    set_num_threads = torch.set_num_threads
    try:
        yield
    finally:
        torch.set_num_threads = set_num_threads


@contextmanager
def unreadable_modules_out_of_sight() -> Iterator[None]:
    """Hide from vLLM the modules that it cannot read: it reads every attribute of every imported module as it starts.

    Two such attributes are llvmlite's library, which numba imports, and flask's `request` while no request is served.
    A world or a test may have imported either.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of attributes that are deprecated
        hidden = {name: module for name, module in list(sys.modules.items()) if not _readable(module)}
    for name in hidden:
        del sys.modules[name]
    try:
        yield
    finally:
        sys.modules.update(hidden)


@contextmanager
def _logs_of_other_threads_to(descriptor: int) -> Iterator[None]:
    """Have what other threads log to standard error written to this file descriptor."""
    this_thread = threading.get_ident()
    filters: dict[logging.Handler, Callable[[logging.LogRecord], bool]] = {}
    for handler in logging.getLogger().handlers or filter(None, [logging.lastResort]):
        if isinstance(handler, logging.StreamHandler) and _is_standard_error(handler.stream):

            def passes(record: logging.LogRecord, handler: logging.StreamHandler[Any] = handler) -> bool:
                if record.thread == this_thread:
                    return True
                os.write(descriptor, (handler.format(record) + handler.terminator).encode(errors="replace"))
                return False

            handler.addFilter(passes)
            filters[handler] = passes
    try:
        yield
    finally:
        for handler, each in filters.items():
            handler.removeFilter(each)


def _is_standard_error(stream: Any) -> bool:
    try:
        return bool(stream.fileno() == 2)
    except (AttributeError, OSError, ValueError):  # a stream in memory, or a closed one
        return False


def _readable(module: Any) -> bool:
    """Whether each attribute of a module can be read as vLLM reads it."""
    try:
        for value in list(getattr(module, "__dict__", {}).values()):
            if hasattr(value, "__dict__"):
                vars(value).get("kernel")
    except Exception:
        return False
    return True


@contextmanager
def quiet() -> Iterator[None]:
    """Capture standard error, native code's included, while vLLM starts; show it only if the start fails.

    What other threads log to it is shown at once.
    """
    sys.stderr.flush()
    standard_error = os.dup(2)
    with tempfile.TemporaryFile() as capture, _logs_of_other_threads_to(standard_error):
        os.dup2(capture.fileno(), 2)
        try:
            # On a terminal a progress bar may have replaced sys.stderr by a stream of its own.
            with redirect_stderr(io.TextIOWrapper(io.FileIO(2, "w", closefd=False), write_through=True)):
                yield
        except BaseException:
            os.dup2(standard_error, 2)
            capture.seek(0)
            os.write(2, capture.read())
            raise
        finally:
            os.dup2(standard_error, 2)
            os.close(standard_error)
