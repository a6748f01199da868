"""Both engines keep the contract, agree with the learner, and are functions of weights, seed and submissions."""

from __future__ import annotations

import importlib.util
import io
import json
import logging
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import flask  # noqa: F401
import pytest
import torch
from policy_samples import CONTEXT, END, as_sequences, contexts, sample

from turnwise.config.model_settings import PLAIN, Adapter, ModelSettings
from turnwise.data.trajectory import TokenSequence
from turnwise.errors import ConfigurationError
from turnwise.policy.engines.contract import Engine, Sampling
from turnwise.policy.engines.resident import close_resident_engine, make_engine
from turnwise.policy.engines.vllm_start import quiet
from turnwise.policy.learner.learner import Learner
from turnwise.policy.learner.update import UpdateBatch, UpdateSettings
from turnwise.store import run_environment

MakePolicy = Callable[..., Path]
with_vllm = pytest.param("vllm", marks=pytest.mark.engine)


@pytest.fixture(params=[with_vllm, "embedded"])
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == "vllm":
        shared: Engine = request.getfixturevalue("vllm_engine")
        return shared
    return make_engine("embedded", threads=1, context_length=CONTEXT, maximum_episodes=16)


def differences(learner: Learner, engine: Engine, temperature: float, seed: int) -> list[float]:
    sequences = as_sequences(contexts(), sample(engine, contexts(), temperature=temperature, seed=seed))
    rows = learner.log_probabilities(sequences, temperature, 1000)
    return [
        abs(of_learner - of_engine)
        for sequence, row in zip(sequences, rows, strict=True)
        for of_learner, of_engine, mask in zip(row, sequence.log_probabilities, sequence.mask, strict=True)
        if mask
    ]


LORA = ModelSettings(adapter=Adapter(rank=4, alpha=8))
# In this order vLLM starts twice, once of them without weights, which an adapter's base then gives it.
TRAINED = [(True, LORA), (True, PLAIN), (False, PLAIN), (False, LORA)]


@pytest.mark.kernels
@pytest.mark.parametrize(("tied", "model"), TRAINED, ids=["tied-lora", "tied-all", "untied-all", "untied-lora"])
def test_engine_and_learner_agree_after_every_update(
    engine: Engine, make_policy: MakePolicy, tmp_path: Path, tied: bool, model: ModelSettings
) -> None:
    """From the folder and from memory; also where an adapter is trained: the engine is given the merged weights."""
    policy = make_policy(11, tied=tied)
    learner, base = Learner(policy, threads=1, model=model), None if model.adapter is None else policy
    for iteration, temperature in enumerate([1.0, 0.9, 1.0, 0.9]):
        folder = tmp_path / str(iteration)
        learner.save(folder)
        in_memory = learner.model if iteration % 2 else None
        engine.load(folder, f"agree-{tied}-{model.adapter}-{iteration}", in_memory, base)
        found = differences(learner, engine, temperature, seed=iteration)
        assert sum(found) / len(found) < 1e-5
        assert max(found) < 1e-4
        replies = sample(engine, contexts(), temperature=temperature, seed=iteration)
        batch = UpdateBatch.from_turns(as_sequences(contexts(), replies), [((-1.0) ** index,) for index in range(12)])
        settings = UpdateSettings(
            learning_rate=1e-2, temperature=temperature, micro_batch_tokens=500, maximum_mismatch=1e-5
        )
        metrics = learner.update(batch, settings)
        assert metrics["mismatch"] < 1e-5
    stale = differences(learner, engine, 1.0, seed=9)
    assert sum(stale) / len(stale) > 1e-3, "weights that were not handed over must be seen"


@pytest.mark.engine
@pytest.mark.kernels
@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors have one set of kernels")
def test_torch_and_vllm_compute_with_the_class_of_kernels_that_they_are_held_to(
    vllm_engine: Engine, make_policy: MakePolicy
) -> None:
    vllm_engine.load(make_policy(17, tied=False), "whose kernels")  # as the one before: vLLM starts for no other
    loaded = {
        name for name in ("_C", "_C_AVX2", "_C_AVX512") if f"/{name}.abi3.so" in Path("/proc/self/maps").read_text()
    }
    has_more = "avx512f" in run_environment.platform()["processor"]["flags"]
    held = os.environ.get("ATEN_CPU_CAPABILITY") == "avx2" or not has_more
    assert (loaded == {"_C_AVX2"}) == (torch.backends.cpu.get_cpu_capability() == "AVX2") == held


@pytest.mark.engine
def test_new_weights_of_the_same_sizes_do_not_start_vllm_again(
    vllm_engine: Engine, make_policy: MakePolicy, tmp_path: Path
) -> None:
    policy = make_policy(12)
    # In the words of an older transformers, as models on the hub are published.
    values = json.loads((policy / "config.json").read_text())
    values |= {"rope_theta": values.pop("rope_parameters")["rope_theta"], "torch_dtype": "bfloat16"}
    del values["dtype"]
    (policy / "config.json").write_text(json.dumps(values))
    vllm_engine.load(policy, "published")
    inner = vllm_engine._engine  # type: ignore[attr-defined]
    Learner(policy, threads=1).save(tmp_path)
    vllm_engine.load(tmp_path, "saved by a learner")
    assert vllm_engine._engine is inner  # type: ignore[attr-defined]


@pytest.mark.engine
def test_the_two_engines_agree_greedily(vllm_engine: Engine, make_policy: MakePolicy) -> None:
    policy = make_policy(13)
    reference = make_engine("embedded", threads=1, context_length=CONTEXT, maximum_episodes=5)
    vllm_engine.load(policy, "greedy")
    reference.load(policy, "greedy")
    found, expected = (sample(engine, contexts(), temperature=0.0) for engine in (vllm_engine, reference))
    assert [reply.tokens for reply in found] == [reply.tokens for reply in expected]
    for reply, reference_reply in zip(found, expected, strict=True):
        assert reply.log_probabilities == pytest.approx(reference_reply.log_probabilities, abs=1e-4)


def test_the_same_seed_gives_the_same_replies_to_the_bit(engine: Engine, make_policy: MakePolicy) -> None:
    engine.load(make_policy(14), "seeds")
    first = sample(engine, contexts(), temperature=1.0, seed=5)
    torch.rand(3)
    assert sample(engine, contexts(), temperature=1.0, seed=5) == first
    assert sample(engine, contexts(), temperature=1.0, seed=6) != first


@pytest.mark.engine
def test_weights_handed_over_sample_as_weights_started_with(
    vllm_engine: Engine, make_policy: MakePolicy, tmp_path: Path
) -> None:
    """A resumed run starts vLLM from the learner's folder whose weights the uninterrupted run handed over."""
    learner = Learner(make_policy(15), threads=1)
    sequences = [
        TokenSequence((*context, 9, 8), (-1,) * len(context) + (0, 0), (0.0,) * (len(context) + 2))
        for context in contexts()
    ]
    learner.supervised_step(sequences, learning_rate=1e-2, micro_batch_tokens=500)
    learner.save(tmp_path)
    vllm_engine.load(make_policy(16), "another")
    vllm_engine.load(tmp_path, "handed over")
    handed_over = sample(vllm_engine, contexts(), temperature=0.9, seed=1)
    vllm_engine.load(make_policy(15, tied=False), "another architecture")
    vllm_engine.load(tmp_path, "started with")
    assert sample(vllm_engine, contexts(), temperature=0.9, seed=1) == handed_over


ANOTHER_PROCESS = """
import json, sys
from pathlib import Path
from turnwise.own_process import collect_rarely, leave
collect_rarely()
sys.modules["vllm"] = None
sys.path.insert(0, sys.argv[2])
from policy_samples import CONTEXT, contexts, sample
from turnwise.policy import critic, learner, model, scoring
import turnwise.policy.learner.learner, turnwise.policy.engines.contract
import turnwise.policy.engines.embedded
from turnwise.policy.engines.resident import make_engine

def sampled(name):
    engine = make_engine(name, threads=1, context_length=CONTEXT, maximum_episodes=16)
    engine.load(Path(sys.argv[1]), "policy")
    return [[reply.tokens, reply.log_probabilities] for reply in sample(engine, contexts(), temperature=0.9, seed=2)]

if __name__ == "__main__":
    found = {"embedded": sampled("embedded")}
    assert sys.modules.pop("vllm") is None
    found["imported"] = [name for name in sys.modules if name.split(".")[0] == "vllm"]
    if sys.argv[3] == "both":
        found["vllm"] = sampled("vllm")
    print(json.dumps(found))
    leave(0)
"""


@pytest.fixture(scope="module")
def another_process(make_policy: MakePolicy, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What another process samples from policy 17 by engine: the embedded one first, while vLLM cannot be imported."""
    script = tmp_path_factory.mktemp("another") / "another_process.py"
    script.write_text(ANOTHER_PROCESS)
    engines = "both" if importlib.util.find_spec("vllm") else "embedded"
    command = [sys.executable, str(script), str(make_policy(17)), str(Path(__file__).parent), engines]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert finished.returncode == 0, finished.stderr
    found: dict[str, Any] = json.loads(finished.stdout)
    return found


def test_another_process_samples_the_same_to_the_bit(
    engine: Engine, make_policy: MakePolicy, another_process: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    engine.load(make_policy(17), "two processes")
    here = sample(engine, contexts(), temperature=0.9, seed=2)
    there = another_process[request.node.callspec.params["engine"]]
    assert [[list(reply.tokens), list(reply.log_probabilities)] for reply in here] == there


def test_the_library_needs_and_imports_no_vllm_until_an_engine_starts(another_process: dict[str, Any]) -> None:
    assert another_process["embedded"] and another_process["imported"] == []


def test_replies_are_cut_off_at_the_limit_and_at_the_context(engine: Engine, make_policy: MakePolicy) -> None:
    engine.load(make_policy(18), "limits")
    generated = engine.tokens_generated
    engine.begin(0, Sampling(temperature=1.0, max_reply_tokens=4, end_tokens=(END,)))
    engine.submit(7, [5] * (CONTEXT - 2))
    engine.submit(3, [6] * 4)
    engine.submit(5, [6] * 4, reply_tokens=3)
    engine.submit(9, [6] * 4, reply_tokens=6)
    assert engine.in_flight == 4
    replies = []
    while engine.in_flight:
        replies += engine.step()
    lengths = {reply.episode: len(reply.tokens) for reply in replies if not reply.complete}
    assert all(lengths[episode] == limit for episode, limit in {7: 2, 3: 4, 5: 3, 9: 6}.items() if episode in lengths)
    assert lengths, "a reply of an untrained policy seldom ends by itself"
    assert engine.tokens_generated - generated == sum(len(reply.tokens) for reply in replies)
    assert all(len(reply.tokens) == len(reply.log_probabilities) for reply in replies)


def test_a_reply_ends_with_the_end_token_which_it_includes(engine: Engine, make_policy: MakePolicy) -> None:
    engine.load(make_policy(18), "limits")
    everything = tuple(range(300))
    engine.begin(0, Sampling(temperature=1.0, max_reply_tokens=8, end_tokens=everything))
    for episode in (4, 2, 3):
        engine.submit(episode, [5, 6, episode])
    replies = engine.step()
    assert [reply.episode for reply in replies] == [2, 3, 4], "in the order of their episodes"
    assert all(reply.complete and len(reply.tokens) == 1 for reply in replies)


def test_more_episodes_than_fit_side_by_side_wait_their_turn(engine: Engine, make_policy: MakePolicy) -> None:
    engine.load(make_policy(18), "limits")
    many = contexts(12) * 3
    assert [reply.episode for reply in sample(engine, many, temperature=1.0)] == list(range(36))


def test_a_context_without_room_for_a_reply_is_refused(engine: Engine, make_policy: MakePolicy) -> None:
    engine.load(make_policy(18), "limits")
    engine.begin(0, Sampling(temperature=1.0, max_reply_tokens=4, end_tokens=(END,)))
    with pytest.raises(ValueError, match=f"found {CONTEXT}"):
        engine.submit(0, [5] * CONTEXT)
    assert engine.in_flight == 0


def test_calls_out_of_order_are_refused(engine: Engine, make_policy: MakePolicy) -> None:
    engine.load(make_policy(18), "limits")
    sampling = Sampling(temperature=1.0, max_reply_tokens=4, end_tokens=(END,))
    engine.begin(0, sampling)
    with pytest.raises(RuntimeError, match="nothing"):
        engine.step()
    engine.submit(0, [5, 6])
    with pytest.raises(RuntimeError, match="begin a rollout"):
        engine.begin(0, sampling)
    with pytest.raises(RuntimeError, match="load a policy"):
        engine.load(make_policy(19), "something else")
    while engine.in_flight:
        engine.step()


def test_an_engine_without_a_policy_does_not_begin() -> None:
    engine = make_engine("embedded", threads=1, context_length=CONTEXT, maximum_episodes=2)
    with pytest.raises(RuntimeError, match="call load first"):
        engine.begin(0, Sampling(temperature=1.0, max_reply_tokens=4, end_tokens=(END,)))


@pytest.mark.engine
def test_vllm_leaves_the_learner_its_threads(vllm_engine: Engine, make_policy: MakePolicy) -> None:
    """vLLM's CPU worker replaces torch.set_num_threads by a function that does nothing."""
    vllm_engine.load(make_policy(18), "limits")
    torch.set_num_threads(2)
    assert torch.get_num_threads() == 2
    sample(vllm_engine, contexts(2), temperature=1.0)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    assert torch.get_num_threads() == 1


@pytest.mark.engine
def test_vllm_leaves_the_logging_of_the_process_alone(vllm_engine: Engine, make_policy: MakePolicy) -> None:
    # It would put a handler there, and close all others on the way: Prefect's, too.
    vllm_engine.load(make_policy(18), "limits")
    assert logging.getLogger("vllm").handlers == []


@pytest.mark.engine
def test_vllm_starts_beside_modules_whose_attributes_cannot_be_read(
    vllm_engine: Engine, make_policy: MakePolicy
) -> None:
    """Such as flask's `request`, which a world or a server of the same process may have imported, as this file has."""
    vllm_engine.load(make_policy(18), "beside")
    with pytest.raises(RuntimeError, match="outside of"):
        vars(sys.modules["flask"].request)


IMPORTS_WHILE_IT_HOLDS_SOMETHING = """
import weakref
from turnwise.policy.engines.vllm_start import import_vllm

class Model:
    pass

def warm_start():
    model = Model()
    import_vllm()
    return weakref.ref(model)

assert warm_start()() is None, "a frame that waited for the import is kept"
"""


@pytest.mark.engine
def test_importing_vllm_keeps_nothing_of_those_who_wait_for_it() -> None:
    command = [sys.executable, "-c", IMPORTS_WHILE_IT_HOLDS_SOMETHING]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=Path(__file__).parents[2])
    assert finished.returncode == 0, finished.stderr


def test_what_vllm_says_at_its_start_is_kept_from_bars_that_own_standard_error(
    capfd: pytest.CaptureFixture[str],
) -> None:
    bars = io.StringIO()
    with redirect_stderr(bars), quiet():
        print("a warning", file=sys.stderr)
    assert bars.getvalue() == "" and capfd.readouterr().err == ""
    with redirect_stderr(bars), pytest.raises(ValueError, match="failed"), quiet():
        print("what led to it", file=sys.stderr)
        raise ValueError("failed")
    assert capfd.readouterr().err == "what led to it\n"


def test_what_another_thread_logs_while_vllm_starts_is_shown(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logger, handler = logging.getLogger("another"), logging.StreamHandler(os.fdopen(2, "w", closefd=False))
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])  # Prefect's is there, too, after any flow
    with quiet():
        logger.warning("of the start")
        another = threading.Thread(target=logger.warning, args=("of another thread",))
        another.start()
        another.join()
    assert capfd.readouterr().err == "of another thread\n" and not handler.filters


@pytest.mark.engine
def test_torchs_compiler_stays_on_for_others_after_vllm_has_sampled(
    vllm_engine: Engine, make_policy: MakePolicy
) -> None:
    vllm_engine.load(make_policy(18), "uncompiled")
    sample(vllm_engine, contexts(), temperature=0.9, seed=1)
    compiled = []

    def compile_nothing(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        compiled.append(graph)
        return graph.forward

    function = torch.compile(lambda numbers: numbers + 1, backend=compile_nothing)
    assert function(torch.ones(2)).tolist() == [2, 2]
    assert len(compiled) == 1 and not torch._dynamo.config.disable
    assert os.environ.get("TORCH_COMPILE_DISABLE") is None


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="TW-unknown-engine"):
        make_engine("llama", threads=1, context_length=8, maximum_episodes=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"temperature": -0.1}, "TW-option-range"),
        ({"max_reply_tokens": 0}, "TW-option-range"),
        ({"end_tokens": ()}, "TW-no-end-token"),
    ],
)
def test_impossible_sampling_is_refused(wrong: dict[str, object], reason: str) -> None:
    right: dict[str, object] = {"temperature": 1.0, "max_reply_tokens": 4, "end_tokens": (1,)}
    with pytest.raises(ConfigurationError, match=reason):
        Sampling(**{**right, **wrong})  # type: ignore[arg-type]


@pytest.mark.engine
@pytest.mark.skipif(
    not run_environment.processor_computes_bfloat16(), reason="this processor has no instructions for bfloat16"
)
def test_in_bfloat16_vllm_and_the_learner_round_alike(make_policy: MakePolicy) -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed")
    policy = make_policy(18)
    close_resident_engine()
    engine = make_engine("vllm", threads=1, context_length=CONTEXT, maximum_episodes=16, precision="bfloat16")
    engine.load(policy, "rounded")
    rounded, exact = (
        differences(Learner(policy, threads=1, model=model), engine, 1.0, seed=3)
        for model in (ModelSettings(precision="bfloat16"), PLAIN)
    )
    engine.close()
    assert 1e-4 < sum(rounded) / len(rounded) < 1.5 * sum(exact) / len(exact) < 0.05
