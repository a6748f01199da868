"""One iteration of `experiments/paper/ragen.yaml` with a model of Qwen2.5-0.5B's exact shape, on this machine's CPU.

The weights are random, since none can be had everywhere: seconds and memory are those of the shape, and success says
nothing. The vocabulary is as large as Qwen's, 151,936 rows, and the tokenizer has as many tokens as Qwen's. What is
small: few prompts, short replies, one iteration. All else is the preset's, from set-up to the report; the run is killed
by SIGKILL in the middle of its update, begun again, and its policy exported.

    python -m benchmarks.half_billion                                                       every weight is trained
    python -m benchmarks.half_billion -s 'optimization.adapter={rank: 8, alpha: 16}'        an adapter

Prints the plan of memory, and for each stage its seconds and the peak of the process's resident memory during it. The
peak includes all that the process holds then: engine, learner, libraries.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain, islice, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from tests.policy.published_shapes import QWEN, write_published
from turnwise.experiment import Experiment, load, single

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

ROOT = Path(__file__).resolve().parents[1]
PRESET = ROOT / "experiments" / "paper" / "ragen.yaml"
VARIANT = "starpo-grpo"
SIZE = "0.5B"
SETTINGS: dict[str, Any] = {
    "compute.device": "cpu",
    "compute.precision": "float32",
    "compute.gradient_checkpointing": True,
    "compute.logit_chunk_tokens": 64,
    "agent.maximum_reply_tokens": 16,
    "agent.context_tokens": 2048,
    "data.train_tasks": 4,
    "data.validation_tasks": 1,
    "data.test_tasks": 1,
    "rollout.prompts": 2,
    "rollout.group_size": 2,
    "optimization.iterations": 1,
    "optimization.mini_batches": 1,
    "optimization.micro_batch_tokens": 2048,
    "evaluation.every": 1,
    "ablation.seeds": [1],
}
STRUCK = "update"
"""The stage in which the run is killed."""
STRUCK_AFTER_SECONDS = 2.0
GIB = 2**30
SPARE_ROWS = 271
"""Rows of the vocabulary that no token of Qwen2.5's tokenizer has."""


@dataclass(frozen=True)
class StageAccount:
    """A stage that has returned: its time, and the most memory that the process had during it."""

    stage: str
    seconds: float
    peak: int
    """Resident memory, in bytes."""
    cached: bool


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.half_billion", description=__doc__.split("\n")[0])
    parser.add_argument("-s", "--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--variant", default=VARIANT, help="a name of the preset's section variants")
    parser.add_argument("--folder", type=Path, help="where model and results are kept; else they are removed")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(list(arguments))
    if options.child:
        run_and_account(experiment_of(options.child, options.variant, options.set))
        return
    with tempfile.TemporaryDirectory() as temporary:
        measure((options.folder or Path(temporary)).absolute(), options.variant, options.set)


def measure(folder: Path, variant: str, settings: Sequence[str]) -> None:
    """Make the model, run the iteration with a kill in it, export the policy, and print what each part took."""
    model = folder / "model"
    began = time.perf_counter()
    if not (model / "config.json").is_file():
        make_model(model)
    say(f"model of {SIZE} shape with random weights: {time.perf_counter() - began:.0f} s")
    print_plan(experiment_of(model, variant, settings))
    shutil.copyfile(ROOT / "params.yaml", folder / "params.yaml")  # so that the results are this folder's
    environment = {**os.environ, "TURNWISE_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "benchmarks.half_billion", "--child", str(model), "--variant", variant]
    command += [part for each in settings for part in ("-s", each)]
    say(f"\n{'stage':<24}{'seconds':>10}{'peak, GiB':>12}")
    print_accounts(command, folder, environment, killed=True)
    say(f"killed in its {STRUCK}, and begun again:")
    print_accounts(command, folder, environment, killed=False)
    began = time.perf_counter()
    export = [sys.executable, "-m", "flows.commands.cli", "export", f"{variant} seed 1"]
    exporting = subprocess.Popen([*export, "--to", str(folder / "exported")], cwd=folder, env=environment)
    _, status, usage = os.wait4(exporting.pid, 0)
    if status:
        raise SystemExit(f"the export must end well; it ended with {status}")
    print_account(StageAccount("export", time.perf_counter() - began, usage.ru_maxrss * 1024, cached=False))


def experiment_of(model: Path, variant: str, settings: Sequence[str]) -> Experiment:
    """The preset with one variant and one iteration, for this model on the CPU."""
    base_settings = {**SETTINGS, "policy.model": str(model), "ablation.variants": [variant]}
    values = [*(f"{key}={json.dumps(value)}" for key, value in base_settings.items()), *settings]
    return single(load(ROOT / "params.yaml", [PRESET], values), variant, 1)


def make_model(folder: Path) -> None:
    """A folder as a published model's: configuration, random weights in bfloat16, tokenizer with Qwen's template."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    write_published(folder, SIZE)
    tokenizer = a_tokenizer(QWEN[SIZE]["vocab_size"] - SPARE_ROWS)
    configuration = AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
    configuration.eos_token_id, configuration.bos_token_id = tokenizer.eos_token_id, None
    configuration.pad_token_id = tokenizer.pad_token_id
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(configuration, dtype=torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def a_tokenizer(vocabulary: int) -> PreTrainedTokenizerFast:
    """A tokenizer of about `vocabulary` tokens with Qwen's chat template: bytes, and groups of two to four letters."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    from turnwise.policy.tokenizer import CHAT_TEMPLATE, END, PAD, START

    letters = "Ġabcdefghijklmnopqrstuvwxyz"  # Ġ is how a byte-level tokenizer writes a space
    pairs = [(one, other) for one, other in product(letters, repeat=2)]
    fours = (("".join(one), "".join(other)) for one, other in product(pairs, repeat=2))
    threes = (("".join(pair), letter) for pair, letter in product(pairs, letters))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = list(islice(chain(pairs, threes, fours), vocabulary - len(alphabet) - 3))
    names = dict.fromkeys([*alphabet, *("".join(merge) for merge in merges)])
    tokenizer = Tokenizer(models.BPE(vocab={name: place for place, name in enumerate(names)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        extra_special_tokens=[START],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def print_plan(experiment: Experiment) -> None:
    """The planned memory of each phase."""
    from turnwise.policy.dimensions import dimensions_of
    from turnwise.training_runs.memory import largest_plan, parts_of

    dimensions = dimensions_of(experiment.policy)
    assert dimensions is not None, "the model is a folder"
    plan = largest_plan(experiment, dimensions)
    phases = ", ".join(f"{phase.name} {phase.bytes / GIB:.1f}" for phase in plan.phases)
    say(f"the plan, in GiB: {phases}\nat its peak: {parts_of(plan)}")


def print_accounts(command: Sequence[str], folder: Path, environment: dict[str, str], *, killed: bool) -> None:
    """Print the account of a child as it runs; with `killed`, kill it in the middle of its update."""
    child = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    for line in child.stdout:
        event = json.loads(line)
        if event.get("began") == STRUCK and killed:
            time.sleep(STRUCK_AFTER_SECONDS)
            child.kill()
            child.wait()
            return
        if "seconds" in event:
            print_account(StageAccount(**event))
    if child.wait() or killed:
        wanted = f"reach its {STRUCK}" if killed else "end well"
        raise SystemExit(f"the run must {wanted}; it ended with {child.returncode}")


def print_account(account: StageAccount) -> None:
    """A line of the table."""
    if account.cached:
        say(f"{account.stage:<24}{'found':>10}")
    else:
        say(f"{account.stage:<24}{account.seconds:>10.1f}{account.peak / GIB:>12.2f}")


def run_and_account(experiment: Experiment) -> None:
    """Run the experiment, and write a line of JSON when a stage begins and when it has returned."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the experiment shows is no answer
    from flows.ablation import comparison
    from flows.runtime.server import ensure_server, stop_server
    from turnwise.training_runs.observing import Observer, StageCall, observing

    class Accountant(Observer):
        def started(self, stage: str, label: str) -> None:
            forget_peak()
            write(answers, {"began": stage})

        def finished(self, call: StageCall) -> None:
            write(answers, asdict(StageAccount(call.stage, call.seconds, peak(), call.cached)))

    ensure_server()
    try:
        with observing(Accountant()):
            comparison(experiment)
    finally:
        stop_server()


def forget_peak() -> None:
    """Begin the peak of this process's resident memory anew; Linux alone can."""
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")


def peak() -> int:
    """The peak of this process's resident memory since then, in bytes."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines())
    return int(status["VmHWM"].removesuffix("kB")) * 1024


def write(answers: TextIO, content: dict[str, Any]) -> None:
    """Write a line of JSON."""
    answers.write(json.dumps(content) + "\n")
    answers.flush()


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
    if "--child" in sys.argv:
        sys.stdout.flush()
        os._exit(0)  # tearing vLLM down takes seconds
