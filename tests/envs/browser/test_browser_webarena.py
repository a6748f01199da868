"""The adapter for WebArena's task files, on pages of our own: files that are written here, and the small shop."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from browser_pages import served

from envs.browser.catalogue import CatalogueProduct
from envs.browser.episode import BrowserEnvironment
from envs.browser.loopback import Loopback
from envs.browser.shop import BrowserShop
from envs.browser.webarena import WebArena
from envs.browser.webarena_checks import Unsupported, address_matches, cleaned, read_checks, words
from envs.browser.webarena_tasks import read_tasks
from turnwise import seeding
from turnwise.world import SPLITS, Remaining, Step, Task

SITE = {"__SHOPPING__": "http://shop.example"}


def task(number: int, **changes: Any) -> dict[str, Any]:
    """A task as WebArena's files have it, with what is to be different."""
    return {
        "sites": ["shopping"],
        "task_id": number,
        "require_login": True,
        "storage_state": None,
        "start_url": "__SHOPPING__/",
        "geolocation": None,
        "intent_template": "What does {{product}} cost?",
        "instantiation_dict": {"product": "the mug"},
        "intent": "What does the mug cost?",
        "require_reset": False,
        "eval": answer(must_include=["5.05"]),
        "intent_template_id": 100 + number % 3,
        **changes,
    }


def answer(**references: Any) -> dict[str, Any]:
    return {"eval_types": ["string_match"], "reference_answers": references, "reference_url": "", "program_html": []}


def address(reference: str, **more: Any) -> dict[str, Any]:
    return {"eval_types": ["url_match"], "reference_answers": None, "reference_url": reference, **more}


def pages(*targets: dict[str, Any]) -> dict[str, Any]:
    return {"eval_types": ["program_html"], "reference_answers": None, "program_html": list(targets)}


def target(required: Any, url: str = "last", locator: str = "", **more: Any) -> dict[str, Any]:
    return {"url": url, "locator": locator, "required_contents": required, **more}


def write(path: Path, tasks: Sequence[dict[str, Any]]) -> str:
    path.write_text(json.dumps(list(tasks)))
    return str(path)


# The rules


@pytest.mark.parametrize(
    ("text", "clean"),
    [(' "Yoga Ball" ', "yoga ball"), ("'x'", "x"), ("\"mixed'", "\"mixed'"), ('"', '"'), ("", ""), ('""', "")],
)
def test_quotes_and_capitals_are_no_part_of_an_answer(text: str, clean: str) -> None:
    assert cleaned(text) == clean


def test_words_are_numbers_words_and_signs() -> None:
    assert words("about $0.50, or 1,200 (10%)") == ["about", "$", "0.50", ",", "or", "1,200", "(", "10", "%", ")"]


@pytest.mark.parametrize(
    ("found", "references", "matches"),
    [
        ("http://a.test/x/y", ["http://a.test/x"], True),
        ("http://a.test/x/", ["http://a.test/x"], True),
        ("http://a.test/x", ["http://a.test/x/y"], False),
        ("http://b.test/x", ["http://a.test/x"], False),
        ("http://b.test/x", ["http://a.test/x", "http://b.test/x"], True),
        ("http://a.test/x?q=1&r=2", ["http://a.test/x?q=1"], True),
        ("http://a.test/x?q=2", ["http://a.test/x?q=1"], False),
        ("http://a.test/x", ["http://a.test/x?q=1"], False),
        # The fields of all references count, whichever place matched.
        ("http://a.test/x?q=2", ["http://a.test/x?q=1", "http://a.test/z?q=2"], True),
        ("http://a.test/x#below", ["http://a.test/x"], True),
    ],
)
def test_an_address_holds_the_reference_and_the_fields_of_its_query(
    found: str, references: list[str], matches: bool
) -> None:
    assert address_matches(found, references) == matches


@pytest.mark.parametrize(
    ("evaluation", "reason"),
    [
        (answer(fuzzy_match=["about an hour"]), "fuzzy_match needs a language model as its judge"),
        (answer(must_include="5.05"), "must_include with texts"),
        (answer(must_include=[]), "must_include with texts"),
        (address(" "), "reference_url is empty, so every page would be right"),
        (answer(exact_match=["5.05"]), "exact_match with a text"),
        ({"eval_types": ["string_match"], "reference_answers": None}, "it has no check"),
        ({"eval_types": []}, "it has no check"),
        ({"eval_types": ["page_image_query"]}, "eval type 'page_image_query' is not one of string_match, url_match"),
        (address("__SHOPPING__", url_note="EXACT"), "url_note 'EXACT' is not 'GOLD in PRED'"),
        (pages(target({"must_include": ["x"]}, url="func:last_order()")), "func: calls WebArena's own Python"),
        (pages(target({"must_include": ["x"]}, locator="func:role(__page__)")), "func: calls WebArena's own Python"),
        (pages(target({"must_include": ["x"]}, locator="lambda: 1")), "locator 'lambda: 1' does not begin with"),
        (pages(target({"must_include": ["x"]}, prep_actions=["f()"])), "prep_actions are not played"),
        (pages(target("x")), "required_contents must have exact_match or must_include"),
        (pages(target({"must_include": []})), "required_contents must have exact_match or must_include"),
    ],
)
def test_what_cannot_be_judged_is_refused_with_the_reason(evaluation: dict[str, Any], reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        read_checks(evaluation)


# The files


def test_tasks_are_read_from_a_list_or_a_folder_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    tasks = [task(10), task(9), task(2)]
    one_file = write(tmp_path / "test.raw.json", tasks)
    folder = tmp_path / "config_files"
    folder.mkdir()
    for entry in tasks:
        (folder / f"{entry['task_id']}.json").write_text(json.dumps(entry))
    from_file, refused = read_tasks(Path(one_file), SITE, None)
    assert [found.number for found in from_file] == [2, 9, 10] and not refused
    assert read_tasks(folder, SITE, None)[0] == from_file
    assert from_file[0].starts == ("http://shop.example/",)


def test_a_task_is_named_by_its_number_and_what_it_says_and_not_by_where_the_sites_are(tmp_path: Path) -> None:
    def name(entry: dict[str, Any], site: str) -> str:
        return read_tasks(Path(write(tmp_path / "t.json", [entry])), {"__SHOPPING__": site}, None)[0][0].name

    assert name(task(7), "http://one.example") == name(task(7), "http://two.example/")
    assert name(task(7), "http://one.example").startswith("7-")
    assert name(task(7), "http://one.example") != name(task(7, intent="Another."), "http://one.example")


def test_several_start_pages_and_their_placeholders_are_filled_in(tmp_path: Path) -> None:
    entry = task(1, start_url="__SHOPPING__/a |AND| __GITLAB__/b")
    path = Path(write(tmp_path / "t.json", [entry]))
    sites = {**SITE, "__GITLAB__": 'http://git.example/"quoted"'}
    assert read_tasks(path, sites, None)[0][0].starts == ("http://shop.example/a", 'http://git.example/"quoted"/b')
    assert read_tasks(path, SITE, None)[1] == {1: "sites gives no address for __GITLAB__"}


def test_a_login_is_looked_for_in_the_folder_that_is_named(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "t.json", [task(1, storage_state="./.auth/shopping_state.json")]))
    reason = {1: "it needs the login shopping_state.json, which is not in the folder that logins names"}
    assert read_tasks(path, SITE, None) == ([], reason)
    assert read_tasks(path, SITE, tmp_path) == ([], reason)
    (tmp_path / "shopping_state.json").write_text('{"cookies": [], "origins": []}')
    assert read_tasks(path, SITE, tmp_path)[0][0].login == tmp_path / "shopping_state.json"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "task_files must hold JSON"),
        ('[{"task_id": 1}]', "every task must have start_url, intent, eval"),
        ("[7]", "every task must have task_id"),
        (json.dumps([task(3), task(3)]), "must name every task_id once; found 3 more than once"),
    ],
)
def test_files_that_hold_no_tasks_are_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        read_tasks(path, SITE, None)
    with pytest.raises(ValueError, match="found nothing at"):
        read_tasks(tmp_path / "missing.json", SITE, None)


# The world


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"sites": {}}, "sites must map placeholders"),
        ({"sites": {"shopping": "http://x"}}, "sites must map placeholders such as __SHOPPING__.*found 'shopping'"),
        ({"sites": {"__SHOPPING__": "localhost:7770"}}, "begin with http:// or https://"),
        ({"view": "picture"}, "view must be one of"),
    ],
)
def test_wrong_parameters_are_refused(tmp_path: Path, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WebArena(**{"task_files": write(tmp_path / "t.json", [task(1)]), "sites": SITE, **parameters})


@pytest.mark.needs("chromium")
def test_tasks_that_cannot_be_judged_are_refused_or_left_out(tmp_path: Path) -> None:
    files = write(tmp_path / "t.json", [task(1), task(2, eval=answer(fuzzy_match=["x"]))])
    with pytest.raises(ValueError, match="found task 2: fuzzy_match needs a language model"):
        WebArena(task_files=files, sites=SITE)
    world = WebArena(task_files=files, sites=SITE, unsupported="leave out")
    assert world.refused == {2: "fuzzy_match needs a language model as its judge"}
    assert [found.tags["template"] for found in world.tasks("test", 1)] == [101]
    for split in ("train", "test"):
        with pytest.raises(ValueError, match="count must be at most"):
            world.tasks(split, 2)


@pytest.mark.needs("chromium")
def test_templates_are_dealt_out_so_that_none_is_in_two_splits(tmp_path: Path) -> None:
    files = write(tmp_path / "t.json", [task(number, intent_template_id=number // 4) for number in range(160)])
    world = WebArena(task_files=files, sites=SITE, splits="templates")
    # 40 templates of four tasks each; how many fall to a split follows from their digests.
    assert [world.split_size(split) for split in SPLITS] == [132, 12, 16]
    found = {split: world.tasks(split, world.split_size(split)) for split in SPLITS}
    templates = {split: {found_task.tags["template"] for found_task in tasks} for split, tasks in found.items()}
    assert not templates["train"] & templates["test"] and not templates["train"] & templates["validation"]
    assert sum(map(len, templates.values())) == 40


@pytest.mark.needs("chromium")
def test_there_is_no_oracle_no_named_state_and_no_task_of_other_files(tmp_path: Path) -> None:
    world = WebArena(task_files=write(tmp_path / "t.json", [task(1)]), sites=SITE)
    assert world.baselines == ("random",) and not world.names_states
    with pytest.raises(ValueError, match="no oracle"):
        world.make(world.tasks("test", 1)[0], 0).oracle(Remaining(1, 1, 1))
    with pytest.raises(ValueError, match="a task must be one of these files"):
        world.make(Task("webarena", "webarena/1/2-abc", "test", 2), 0)


# Episodes in the shop

LAMP = CatalogueProduct(1, "red oak lamp", "lamp", 1240)
MUG = CatalogueProduct(2, "blue clay mug", "mug", 505)


@contextmanager
def in_the_shop(tmp_path: Path, **changes: Any) -> Iterator[tuple[BrowserEnvironment, str]]:
    """An episode of a task that is so changed, and the address of the shop."""
    shop = BrowserShop([LAMP, MUG])
    server = Loopback({}, default=shop.respond)
    site = f"http://127.0.0.1:{server.port}"
    world = WebArena(task_files=write(tmp_path / "t.json", [task(1, **changes)]), sites={"__SHOPPING__": f"{site}/"})
    environment = world.make(world.tasks("test", 1)[0], 0)
    try:
        environment.reset()
        yield environment, site
    finally:
        environment.close()
        server.close()


def play(environment: BrowserEnvironment, *actions: str) -> Step:
    steps = [environment.step(action) for action in actions]
    assert all(step.valid for step in steps)
    return steps[-1]


@pytest.mark.needs("chromium")
@pytest.mark.parametrize(
    ("references", "said", "solved"),
    [
        ({"must_include": ["5.05"]}, "It costs $5.05.", True),
        ({"must_include": ["5.05", "mug"]}, "$5.05", False),
        ({"must_include": ["5"]}, "$5.05", False),
        ({"must_include": ["5"]}, "there are 5 of them", True),
        ({"exact_match": "Blue Clay Mug"}, "'blue clay mug'", True),
        ({"exact_match": "Blue Clay Mug"}, "the blue clay mug", False),
        ({"exact_match": "5.05", "must_include": ["mug"]}, "5.05", False),
        ({"must_include": ["x"]}, "", False),
    ],
)
def test_answers_are_judged(tmp_path: Path, references: dict[str, Any], said: str, solved: bool) -> None:
    with in_the_shop(tmp_path, eval=answer(**references)) as (environment, _):
        last = play(environment, f"stop [{said}]")
        assert (last.terminated, last.success, dict(last.rewards)) == (True, solved, {"solved": float(solved)})


@pytest.mark.needs("chromium")
def test_the_address_at_the_end_is_judged(tmp_path: Path) -> None:
    evaluation = address("__SHOPPING__/product?number=2 |OR| __SHOPPING__/cart")
    for opened, solved in (("product?number=2", True), ("product?number=1", False), ("", False)):
        with in_the_shop(tmp_path, eval=evaluation) as (environment, site):
            assert play(environment, f"goto [{site}/{opened}]", "stop").success == solved


@pytest.mark.needs("chromium")
def test_what_pages_say_at_the_end_is_judged(tmp_path: Path) -> None:
    evaluation = pages(
        target({"must_include": ["blue clay mug", "$10.10 |OR| ten dollars"]}, url="__SHOPPING__/cart"),
        target({"exact_match": "Total: $10.10"}, "__SHOPPING__/cart", "document.querySelector('ul + p').outerText"),
        target({"must_include": ['Thanks & "bye"']}, "__SHOPPING__/product?number=2"),
        target({"exact_match": "half a comment"}, locator="document.querySelector('textarea').value"),
        target({"exact_match": ""}, locator="document.querySelector('video').src"),
    )
    comment = ('type [7] [Thanks & "bye"] [0]', "click [8]")
    with in_the_shop(tmp_path, eval=evaluation) as (environment, site):
        mug = f"goto [{site}/product?number=2]"
        play(environment, mug, "type [5] [2] [0]", "click [6]", mug, *comment)
        # The page that is shown at the end keeps what was typed there while other pages are looked at.
        assert play(environment, "type [7] [half a comment] [0]", "stop").success
    with in_the_shop(tmp_path, eval=evaluation) as (environment, site):
        mug = f"goto [{site}/product?number=2]"
        assert not play(environment, mug, "click [6]", mug, *comment, "type [7] [half a comment] [0]", "stop").success


@pytest.mark.needs("chromium")
def test_every_kind_of_check_must_hold(tmp_path: Path) -> None:
    evaluation = {**address("__SHOPPING__/cart"), "eval_types": ["string_match", "url_match"]}
    evaluation["reference_answers"] = {"must_include": ["done"]}
    for actions, solved in (
        (["click [2]", "stop [done]"], True),
        (["click [2]", "stop"], False),
        (["stop [done]"], False),
    ):
        with in_the_shop(tmp_path, eval=evaluation) as (environment, _):
            assert play(environment, *actions).success == solved


@pytest.mark.needs("chromium")
def test_a_login_is_carried_into_the_browser(tmp_path: Path) -> None:
    login = {"name": "name", "value": "Ann", "domain": "127.0.0.1", "path": "/", "expires": -1}
    login |= {"httpOnly": False, "secure": False, "sameSite": "Lax"}
    (tmp_path / "state.json").write_text(json.dumps({"cookies": [login], "origins": []}))
    with served({"/": "<p id=p></p><script>p.textContent = document.cookie</script>"}) as site:
        files = write(tmp_path / "t.json", [task(1, storage_state="./.auth/state.json")])
        world = WebArena(task_files=files, sites={"__SHOPPING__": site}, logins=str(tmp_path))
        environment = world.make(world.tasks("test", 1)[0], 0)
        try:
            assert "name=Ann" in environment.reset().text
        finally:
            environment.close()


@pytest.mark.needs("chromium")
def test_other_sites_stay_out_of_reach_and_situations_have_no_names(tmp_path: Path) -> None:
    with in_the_shop(tmp_path) as (environment, site):
        outside = environment.step("goto [http://example.test/]")
        assert not outside.valid and f"goto may only open {site} " in outside.observation.text
        assert outside.observation.state is None
        generator = seeding.generator(0, "player")
        assert environment.step(environment.random(generator, Remaining(9, 1, 9)).actions[0]).valid
