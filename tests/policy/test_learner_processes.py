"""Two processes that train one policy over gloo: the results are one process's, and nothing is left when one dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from policy_samples import two_turn_sequences
from safetensors.torch import load_file

from turnwise.config.model_settings import PLAIN, ModelSettings
from turnwise.config.optimization import ImportanceCorrection, ReferencePenalty
from turnwise.config.schema import CriticSection
from turnwise.errors import LearnerLost, MismatchError
from turnwise.policy.critic.critic import Critic, ValueBatch
from turnwise.policy.learner.learner import OPTIMIZER_FILE, Learner
from turnwise.policy.learner.processes import LearnerProcesses, OnProcesses
from turnwise.policy.learner.update import UpdateBatch, UpdateSettings
from turnwise.policy.model import WEIGHTS_FILE

MakePolicy = Callable[..., Path]
SETTINGS = UpdateSettings(learning_rate=3e-4, temperature=1.0, micro_batch_tokens=40, maximum_mismatch=10.0)
ON_TRUNK = CriticSection(trunk="policy", coefficient=0.5, learning_rate=1e-3, micro_batch_tokens=40)
OWN_TRUNK = CriticSection(learning_rate=1e-3, micro_batch_tokens=40, epochs=2, mini_batches=2)
SPARING = ModelSettings(gradient_checkpointing=True, logit_chunk_tokens=3)


@pytest.fixture(scope="module")
def started() -> Iterator[list[LearnerProcesses]]:
    processes: list[LearnerProcesses] = []
    yield processes
    for each in processes:
        each.close()


@pytest.fixture
def two(started: list[LearnerProcesses]) -> LearnerProcesses:
    """Two processes that all tests share, started again where a test has ended them."""
    if not started or not started[-1].alive:
        started.append(LearnerProcesses(2, device="cpu", seconds=10.0))
    return started[-1]


def a_batch() -> UpdateBatch:
    sequences = two_turn_sequences()
    advantages = [(1.0 - index, 0.5 * index) if index != 2 else (0.0, 0.0) for index in range(len(sequences))]
    behind = [[0.9 * each for each in sequence.log_probabilities] for sequence in sequences]
    return UpdateBatch.from_turns(
        sequences, advantages, groups=(0, 0, 1, 1, 2, 2), reference_log_probabilities=behind
    ).with_values(*values_and_returns())


def values_and_returns() -> tuple[list[list[float]], list[list[float]]]:
    counts = [sum(sequence.mask) for sequence in two_turn_sequences()]
    return (
        [[0.1 * place for place in range(count)] for count in counts],
        [[1.0 - 0.2 * place + index for place in range(count)] for index, count in enumerate(counts)],
    )


def saved(learner: Learner | Critic | OnProcesses, folder: Path) -> dict[str, torch.Tensor]:
    """All tensors that it saves, by file and name."""
    learner.save(folder)
    files = sorted(folder.rglob("*.safetensors"))
    return {f"{file.relative_to(folder)}:{name}": each for file in files for name, each in load_file(file).items()}


def relative(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], file: str) -> float:
    """The L2 norm of the difference of all tensors of a file, over that of the expected ones."""
    assert found.keys() == expected.keys()
    names = [name for name in expected if name.startswith(file) and not name.partition(":")[2].startswith("step.")]
    difference = torch.cat([(found[name] - expected[name]).double().flatten() for name in names])
    return float(difference.norm() / torch.cat([expected[name].double().flatten() for name in names]).norm())


CASES = {
    "token mean": (SETTINGS, PLAIN),
    "three mini-batches, two epochs": (SETTINGS.changed(mini_batches=3, epochs=2), PLAIN),
    "sequence ratios": (SETTINGS.changed(loss="gspo", aggregation="sequence-mean"), PLAIN),
    "every term of the objective": (
        SETTINGS.changed(
            aggregation="prompt-mean",
            entropy_coefficient=0.01,
            reference=ReferencePenalty(coefficient=0.1, estimator="k2", place="loss"),
            correction=ImportanceCorrection(kind="truncate", level="token", high=2.0),
        ),
        PLAIN,
    ),
    "recomputed layers, chunks of logits": (SETTINGS, SPARING),
    "more processes than sequences in a mini-batch": (SETTINGS.changed(mini_batches=6), PLAIN),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_and_policies_are_those_of_one_process(
    name: str, make_policy: MakePolicy, two: LearnerProcesses, tmp_path: Path
) -> None:
    (settings, model), policy = CASES[name], make_policy(0)
    one, both = Learner(policy, threads=1, model=model), two.make("learner", policy, threads=1, model=model)
    expected, found = one.update(a_batch(), settings), both.update(a_batch(), settings)
    assert found == pytest.approx({**expected, "padding_share": found["padding_share"]}, rel=1e-4, abs=1e-6)
    expected_tensors, found_tensors = saved(one, tmp_path / "one"), saved(both, tmp_path / "both")
    assert relative(found_tensors, expected_tensors, WEIGHTS_FILE) < 1e-6
    if expected["optimizer_steps"] == 1:  # the first moment is 0.1 x the gradient then
        first = {name: each for name, each in found_tensors.items() if "exp_avg." in name}
        assert relative(first, {name: expected_tensors[name] for name in first}, OPTIMIZER_FILE) < 1e-6
    assert both.steps == one.steps


def test_an_untied_output_layer_is_trained_too(make_policy: MakePolicy, two: LearnerProcesses, tmp_path: Path) -> None:
    policy = make_policy(0, tied=False)
    one, both = Learner(policy, threads=1), two.make("learner", policy, threads=1)
    for learner in (one, both):
        learner.supervised_step(two_turn_sequences(), learning_rate=3e-4, micro_batch_tokens=40)
    assert relative(saved(both, tmp_path / "both"), saved(one, tmp_path / "one"), WEIGHTS_FILE) < 1e-6


def test_a_fixed_number_of_processes_repeats_to_the_bit(
    make_policy: MakePolicy, two: LearnerProcesses, tmp_path: Path
) -> None:
    policy = make_policy(0)
    made = []
    for name in ("first", "second"):
        learner = two.make("learner", policy, threads=1)
        metrics = learner.update(a_batch(), SETTINGS.changed(mini_batches=2))
        made.append((metrics, saved(learner, tmp_path / name)))
    assert made[0][0] == made[1][0]
    assert all(torch.equal(made[0][1][name], made[1][1][name]) for name in made[0][1])


def test_checkpoints_go_from_two_processes_to_one_and_back(
    make_policy: MakePolicy, two: LearnerProcesses, tmp_path: Path
) -> None:
    """Four steps of one process, and four steps by two, one, two and one of them: the same policy and moments."""
    policy = make_policy(0)
    one = Learner(policy, threads=1)
    for _ in range(4):
        one.update(a_batch(), SETTINGS)
    folder = policy
    for step, processes in enumerate((2, 1, 2, 1)):
        if processes == 2:
            learner: Any = two.make("learner.restore" if step else "learner", folder, threads=1)
        else:
            learner = Learner.restore(folder, threads=1)
        assert learner.steps == step
        learner.update(a_batch(), SETTINGS)
        folder = tmp_path / str(step)
        found = saved(learner, folder)
    expected = saved(one, tmp_path / "one")
    assert relative(found, expected, WEIGHTS_FILE) < 1e-6
    assert relative(found, expected, OPTIMIZER_FILE) < 1e-5
    files = [sorted(path.relative_to(each) for path in each.rglob("*")) for each in (folder, tmp_path / "one")]
    assert files[0] == files[1]
    assert (tmp_path / "0" / "config.json").read_bytes() == (tmp_path / "one" / "config.json").read_bytes()


def test_scores_are_those_of_one_process(make_policy: MakePolicy, two: LearnerProcesses) -> None:
    policy, sequences = make_policy(0), two_turn_sequences()
    expected = Learner(policy, threads=1).log_probabilities(sequences, 0.7, 40)
    found = two.make("learner", policy, threads=1).log_probabilities(sequences, 0.7, 40)
    assert np.allclose(found.values, expected.values, rtol=1e-5, atol=1e-6)
    assert (found.values != 0).sum() == sum(sum(sequence.mask) for sequence in sequences)


def test_a_critic_on_the_policys_trunk_learns_along(
    make_policy: MakePolicy, two: LearnerProcesses, tmp_path: Path
) -> None:
    policy, sequences = make_policy(0), two_turn_sequences()
    warm_up = ValueBatch.of(sequences, *values_and_returns())
    tensors, judged = [], []
    for learner in (Learner(policy, threads=1), two.make("learner", policy, threads=1)):
        learner.add_critic(policy)
        assert learner.critic is not None
        learner.critic.update(warm_up, ON_TRUNK, seed=0)
        learner.update(a_batch(), SETTINGS.changed(critic=ON_TRUNK))
        judged.append((learner.critic.values(sequences, 40).values, learner.critic.bootstrap(sequences, 40)))
        tensors.append(saved(learner, tmp_path / str(len(tensors))))
    for file in (WEIGHTS_FILE, "critic/value_head", "critic/adamw"):
        assert relative(tensors[1], tensors[0], file) < 3e-6
    assert all(np.allclose(found, expected, rtol=1e-4, atol=1e-6) for expected, found in zip(*judged, strict=True))


def test_a_critic_with_its_own_trunk_goes_from_two_processes_to_one_and_back(
    make_policy: MakePolicy, two: LearnerProcesses, tmp_path: Path
) -> None:
    policy, batch = make_policy(0), ValueBatch.of(two_turn_sequences(), *values_and_returns())
    one = Critic.with_own_trunk(policy, OWN_TRUNK, seed=0, threads=1)
    both = two.make("critic", policy, OWN_TRUNK, seed=0, threads=1)
    expected, found = one.update(batch, OWN_TRUNK, seed=1), both.update(batch, OWN_TRUNK, seed=1)
    share = "value_clip_fraction"  # a count of values beyond a bound: rounding moves one that lies at it
    assert found == pytest.approx({**expected, share: found[share]}, rel=1e-4)
    assert found[share] == pytest.approx(expected[share], abs=0.02)
    both.save(tmp_path / "both")
    alone = Critic.restore(tmp_path / "both", threads=1)
    alone.update(batch, OWN_TRUNK, seed=2)
    alone.save(tmp_path / "alone")
    again = two.make("critic.restore", tmp_path / "alone", threads=1)
    for critic in (one, again):
        for seed in (2, 3) if critic is one else (3,):
            critic.update(batch, OWN_TRUNK, seed=seed)
    assert relative(saved(again, tmp_path / "again"), saved(one, tmp_path / "one"), WEIGHTS_FILE) < 3e-6
    assert np.allclose(again.bootstrap(two_turn_sequences(), 40), one.bootstrap(two_turn_sequences(), 40), rtol=1e-4)


def test_they_listen_on_the_loopback_address_alone(make_policy: MakePolicy, two: LearnerProcesses) -> None:
    two.make("learner", make_policy(0), threads=1).log_probabilities(two_turn_sequences(), 1.0, 40)
    for process in two.process_ids:
        for socket in psutil.Process(process).net_connections():
            assert socket.laddr.ip in ("127.0.0.1", "::ffff:127.0.0.1", "::1")


def test_an_error_of_all_is_raised_as_it_is_and_they_go_on(make_policy: MakePolicy, two: LearnerProcesses) -> None:
    learner = two.make("learner", make_policy(0), threads=1)
    with pytest.raises(MismatchError, match="TW-engine-mismatch"):
        learner.update(a_batch(), SETTINGS.changed(maximum_mismatch=1e-9))
    assert two.alive and two.make("learner", make_policy(0), threads=1).steps == 0


def test_a_process_that_hangs_ends_all_with_one_sentence(make_policy: MakePolicy, two: LearnerProcesses) -> None:
    """One that dies does, too: tests/tasks/update/test_update_on_processes.py, with the processes that are there."""
    learner, ids = two.make("learner", make_policy(0), threads=1), two.process_ids
    os.kill(ids[1], signal.SIGSTOP)
    with pytest.raises(LearnerLost, match=r"(?s)\b0\b.*TW-learner-lost"):
        learner.update(a_batch(), SETTINGS)
    assert not two.alive and not any(psutil.pid_exists(each) for each in ids)


def test_they_end_with_the_process_that_started_them_also_while_they_start() -> None:
    """It is killed as soon as they are there, before they have imported torch."""
    started = (
        "import time; two = LearnerProcesses(2, device='cpu'); print(*two.process_ids, flush=True); time.sleep(60)"
    )
    program = f"from turnwise.policy.learner.processes import LearnerProcesses; {started}"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        processes = [psutil.Process(int(each)) for each in owner.stdout.readline().split()]
        owner.kill()
    gone, alive = psutil.wait_procs(processes)
    assert len(gone) == 2 and not alive
