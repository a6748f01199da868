"""Command lines that cannot be run, and what the refusal must name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """A command line."""

    arguments: tuple[str, ...]
    says: str


COMMANDS = (
    Command(("ablatoin",), "did you mean 'ablation'"),
    Command(("exprmnt",), "did you mean 'experiment'"),
    Command((), "COMMAND"),
    Command(("ablation", "--dry-rnu"), "did you mean '--dry-run'"),
    Command(("ablation", "--dry-run", "--proceses", "2"), "did you mean '--processes'"),
    Command(("ablation", "--processes", "0"), "--processes"),
    Command(("ablation", "--processes", "100000"), "--processes"),
    Command(("ablation", "--dry-run", "-s"), "-s"),
    Command(("experiment", "--seed", "x"), "--seed"),
    Command(("experiment", "--seed", "-1"), "--seed"),
    Command(("experiment", "--variant", "mt-grop"), "did you mean 'mt-grpo'"),
    Command(("experiment", "--variant", ""), "variant"),
    Command(("stage", "trian"), "did you mean 'train'"),
    Command(("credit", "--tasks", "0"), "--tasks"),
    Command(("credit", "--replays", "-1"), "--replays"),
    Command(("science", "mt_grop"), "did you mean 'mt_grpo'"),
    Command(("play", "serch"), "did you mean 'search'"),
    Command(("play", "search", "--split", "tran"), "did you mean 'train'"),
    Command(("play", "search", "--format", "plan"), "did you mean 'plain'"),
    Command(("play", "search", "--task", "-1"), "--task"),
    Command(("play", "search", "--task", "100000000000"), "--task"),
    Command(("play", "search", "-p", "hops=[1"), "hops"),
    Command(("play", "sokoban", "--preset", "regen"), "did you mean 'ragen'"),
    Command(("check", "frozen_lak"), "did you mean 'frozen_lake'"),
    Command(("check", "nosuch.module:Class"), "nosuch.module"),
    Command(("check", "frozen_lake", "-s", "siz=3"), "did you mean 'size'"),
    Command(("baselines", "frozen_lak"), "did you mean 'frozen_lake'"),
    Command(("baselines", "frozen_lake", "--episodes", "0"), "--episodes"),
    Command(("serve", "frozen_lak"), "did you mean 'frozen_lake'"),
    Command(("serve", "frozen_lake", "--port", "99999"), "--port"),
    Command(("serve", "frozen_lake", "--processes", "frozen_lake=[1"), "--processes"),
    Command(("new", "wrld", "mine"), "did you mean 'world'"),
    Command(("new", "world", "My-Task"), "'My-Task'"),
    Command(("new", "world", "json"), "'json'"),
    Command(("init", ".", "--world", "mine"), "params.yaml"),
    Command(("init",), "FOLDER"),
    Command(("ui", "--port", "-1"), "--port"),
    Command(("show", "--limit", "0"), "--limit"),
    Command(("show", "--split", "tset"), "did you mean 'test'"),
    Command(("show", "--iteration", "x"), "--iteration"),
    Command(("show", "--advantage", "x"), "--advantage"),
    Command(("show", "--advantage", "nan.."), "--advantage"),
    Command(("export",), "RUN"),
    Command(("export", "tiny"), "--to"),
    Command(("export", "tiny", "--to", "folder", "--iteration", "-1"), "--iteration"),
    Command(("export", "tiny", "--to", "folder", "--iteration", "1", "--best"), "--best"),
    Command(("compare", "--success", "nan"), "--success"),
    Command(("compare", "--success", "2"), "--success"),
    Command(("results", "experiments/worlds/nowhere.yaml"), "nowhere.yaml"),
)

FILES = (
    Command(("ablation", "--dry-run", "experiments/frozen_lak.yaml"), "did you mean 'experiments/frozen_lake.yaml'"),
    Command(("ablation", "--dry-run", "expriments/frozen_lake.yaml"), "expriments/frozen_lake.yaml"),
    Command(("ablation", "--dry-run", "frozen_lake.yaml"), "did you mean 'experiments/frozen_lake.yaml'"),
    Command(("ablation", "--dry-run", "experiments"), "experiments"),
    Command(("ablation", "--dry-run", "README.md"), "README.md:"),
    Command(("ablation", "--dry-run", "x" * 300), "x" * 20),
    Command(("ablation", "--dry-run", "/dev/null"), "/dev/null"),
    Command(("ablation", "--dry-run", "--parameters", "parms.yaml"), "did you mean 'params.yaml'"),
    Command(("ablation", "--dry-run", "--parameters", "dvc.yaml"), "dvc.yaml:"),
    Command(("ablation", "--dry-run", "--parameters", "."), "file"),
)
