"""The page of a run's episodes: one offline HTML file with filters, and episodes of a task side by side.

Every episode is written into the page once, as escaped text. The page's own script only hides what the filters exclude
and adds no text of episodes. The page's content security policy allows only this script, by its digest, so no other
script runs, whatever an episode contains.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

from turnwise.reporting.data.episodes import OCCASIONS, ShownEpisode, by_task
from turnwise.reporting.html import token_heat_map
from turnwise.reporting.html.markup import Markup, join, tag
from turnwise.reporting.html.samples import ENDINGS, LEGEND, article
from turnwise.reporting.html.style import STYLE
from turnwise.store.atomic_write import write_whole

SCRIPT = """
"use strict";
const form = document.querySelector("form");
const episodes = [...document.querySelectorAll("article")];
const tasks = [...document.querySelectorAll("section.task")];
const shown = document.querySelector("output");
function isWanted(episode, wanted) {
  const facts = episode.dataset;
  for (const name of ["occasion", "mode", "success", "ending", "world", "task"])
    if (wanted[name] && facts[name] !== wanted[name]) return false;
  const players = [wanted.player, wanted.beside].filter(Boolean);
  if (players.length && !players.includes(facts.player)) return false;
  if (facts.iteration !== undefined) {
    if (wanted.first && Number(facts.iteration) < Number(wanted.first)) return false;
    if (wanted.last && Number(facts.iteration) > Number(wanted.last)) return false;
  }
  if (wanted.low || wanted.high) {
    const low = wanted.low ? Number(wanted.low) : -Infinity, high = wanted.high ? Number(wanted.high) : Infinity;
    return (facts.advantages || "").split(" ").filter(Boolean).some(v => Number(v) >= low && Number(v) <= high);
  }
  return true;
}
function update() {
  const wanted = Object.fromEntries(new FormData(form));
  let count = 0;
  for (const episode of episodes) {
    episode.hidden = !isWanted(episode, wanted);
    count += !episode.hidden;
  }
  for (const task of tasks) task.hidden = !task.querySelector("article:not([hidden])");
  document.body.classList.toggle("beside", wanted.layout === "beside");
  shown.textContent = count + " of " + episodes.length + " shown";
}
form.addEventListener("input", update);
form.addEventListener("reset", () => setTimeout(update));
form.addEventListener("submit", event => event.preventDefault());
update();
"""

PAGE_STYLE = """
main { max-width: none; padding: 36px 32px 96px; }
main > header, form, section.task > h2 { max-width: 1080px; margin-left: auto; margin-right: auto; }
form { display: flex; flex-wrap: wrap; gap: 10px 14px; align-items: end; padding: 14px 0 12px; margin-top: 14px;
  border-top: 1px solid var(--line); border-bottom: 1px solid var(--line); position: sticky; top: 0; z-index: 1;
  background: #fff; }
form label { font-size: 12.5px; color: var(--grey); display: block; }
form select, form input { font: 14px var(--sans); color: var(--ink); padding: 3px 4px; display: block; max-width: 190px;
  background: #fff; border: 1px solid #c3cad0; border-radius: 4px; }
form input { width: 70px; }
form button { font: 14px var(--sans); padding: 4px 12px; }
output { font-size: 14px; font-weight: 650; margin-left: auto; }
section.task { margin-top: 34px; }
section.task > h2 { font-size: 17px; overflow-wrap: anywhere; }
.row > article { margin: 0 auto 18px; max-width: 1080px; }
.beside .row { display: grid; grid-auto-flow: column; grid-auto-columns: minmax(430px, 1fr); gap: 16px;
  overflow-x: auto; align-items: start; padding-bottom: 8px; }
.beside .row > article { margin: 0; max-width: none; }
.beside .turns > li { grid-template-columns: minmax(0, 1fr); gap: 8px; padding: 14px 16px; }
.beside .rail { display: flex; align-items: center; gap: 14px; }
.beside .rail p { margin: 0; }
.beside .passage, .beside .trajectory > .passage { grid-template-columns: minmax(0, 1fr); gap: 2px; }
[hidden] { display: none !important; }
@media (max-width: 860px) {
  main { padding: 24px 16px 64px; }
  form { position: static; }
  .beside .row { grid-auto-columns: minmax(290px, 88vw); }
}
@media print { form { display: none; } }
"""


def write_episodes(title: str, episodes: Sequence[ShownEpisode], count: int, path: Path) -> None:
    """Write the page of `episodes`, a sample of `count` episodes, to `path` with an atomic write."""
    statement = (
        f"{len(episodes):,} of {count:,} episodes. On the validation and the test panel: the first tasks, each with "
        "one greedy and one sampled episode of every policy. In training: of each batch after which the policy was "
        "evaluated, the first group whose advantages differ. `turnwise show` finds the others."
    )
    write_whole(path, episodes_page(title, statement, episodes))


def episodes_page(title: str, statement: str, episodes: Sequence[ShownEpisode]) -> str:
    """The whole page as text. `statement` says what the episodes are a sample of."""
    largest = token_heat_map.largest_advantage([episode.sample for episode in episodes])
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'"
    )
    head = tag(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        tag("title", title),
        tag("style", Markup(STYLE + token_heat_map.STYLE + PAGE_STYLE)),
    )
    header = tag(
        "header",
        tag("p", "Turnwise episodes", class_="eyebrow"),
        tag("h1", title),
        tag("p", statement),
        tag("p", LEGEND, class_="fine"),
    )
    tasks = [_task(name, of_task, largest) for name, of_task in by_task(episodes).items()]
    script = Markup(f"<script>{SCRIPT}</script>")
    body = tag("body", tag("main", header, _form(episodes), *tasks), script)
    return "<!doctype html>\n" + tag("html", head, "\n", body, lang="en") + "\n"


def _task(name: str, episodes: Sequence[ShownEpisode], largest: float) -> Markup:
    articles = [_episode(episode, largest) for episode in episodes]
    return join("\n", tag("section", tag("h2", name), tag("div", *articles, class_="row"), class_="task"))


def _episode(episode: ShownEpisode, largest: float) -> Markup:
    advantages = episode.sample.advantages
    return article(
        episode.sample,
        largest,
        data_player=episode.player,
        data_occasion=episode.occasion,
        data_mode=episode.mode,
        data_iteration=episode.iteration,
        data_success="yes" if episode.sample.trajectory.success else "no",
        data_ending=episode.ending,
        data_world=episode.world,
        data_task=episode.task,
        data_advantages=None if advantages is None else " ".join(f"{value:.6g}" for value in advantages),
    )


def _form(episodes: Sequence[ShownEpisode]) -> Markup:
    """The form of filters; a choice with fewer than two options is left out."""

    def names(values: Sequence[str]) -> dict[str, str]:
        return {value: value for value in dict.fromkeys(values)}

    endings = {episode.ending: ENDINGS.get(episode.ending, episode.ending) for episode in episodes}
    occasions = {name: f"{name} {'batches' if name == 'training' else 'panel'}" for name in OCCASIONS}
    seen = {episode.occasion for episode in episodes}
    players = names([episode.player for episode in episodes])
    fields = [
        _select("player", "policy", players),
        _select("beside", "and", players),
        _select("occasion", "played on", {name: said for name, said in occasions.items() if name in seen}),
        _select("mode", "mode", names([episode.mode for episode in episodes])),
        _select("success", "success", {"yes": "solved", "no": "unsolved"}),
        _select("ending", "ending", endings),
        _select("world", "world", names([episode.world for episode in episodes])),
        _select("task", "task", names([episode.task for episode in episodes])),
        _range("iteration", "first", "last", 1),
        _range("advantage of a turn", "low", "high", "any"),
    ]
    layout = _select("layout", "episodes of a task", {"beside": "side by side"}, "one below the other")
    return tag("form", *fields, layout, tag("button", "reset", type="reset"), tag("output", ""))


def _select(name: str, label: str, choices: dict[str, str], anything: str = "all") -> Markup:
    if len(choices) < 2 and anything == "all":
        return Markup()
    options = [tag("option", anything if name != "beside" else "–", value="")]
    options += [tag("option", said, value=value) for value, said in choices.items()]
    return tag("label", label, tag("select", *options, name=name))


def _range(label: str, low: str, high: str, step: object) -> Markup:
    first = Markup(f'<input type="number" name="{low}" step="{step}">')
    last = Markup(f'<input type="number" name="{high}" step="{step}">')
    return join(tag("label", f"{label} from", first), tag("label", "to", last))
