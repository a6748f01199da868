import json
from pathlib import Path
from typing import Any

import pytest

from envs.webshop import WebShop
from envs.webshop.original_files import read_goals, read_products
from envs.webshop.reward import evaluate
from turnwise.checking import check_world

KETTLE: dict[str, Any] = {
    "asin": "B07KETTLE1",
    "name": "Acorn Electric Kettle [2 Pack] with Quiet Boil",
    "query": "Electric Kettles ",
    "category": "garden",
    "product_category": "Home & Kitchen › Kitchen & Dining › Kettles",
    "full_description": "A kettle\nthat boils.",
    "small_description": ["BPA free", "Auto shut off"],
    "pricing": "$19.99",
    "customization_options": {
        "Color": [{"value": " Red "}, {"value": "Black/White", "image": "x"}],
        "Size": [{"value": "large"}, {"value": "large"}],
        "Style": None,
        "Pattern": [{"value": "red"}, {"value": "Description"}],
    },
    "images": ["https://example.org/kettle.jpg"],
}
INSTRUCTION: dict[str, Any] = {
    "asin": "B07KETTLE1",
    "instruction": "I am looking for a quiet electric kettle that is bpa free. it should be red.",
    "instruction_attributes": ["bpa free", "Quiet Boil"],
    "instruction_options": ["Red", "large"],
    "worker_id": "x",
}


def write(folder: Path, name: str, content: object) -> Path:
    path = folder / name
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def item(**changes: Any) -> dict[str, Any]:
    return {**KETTLE, **changes}


# Products


def test_an_item_becomes_a_product(tmp_path: Path) -> None:
    catalogue = write(tmp_path, "items.json", [KETTLE])
    attributes = write(tmp_path, "ins.json", {"B07KETTLE1": {"attributes": ["Easy Clean"], "instruction": None}})
    (product,) = read_products(catalogue, attributes, None)
    assert product.title == "Acorn Electric Kettle (2 Pack) with Quiet Boil"
    assert product.price_tag == "$19.99"
    assert product.query == "electric kettles"
    assert product.category == ("Home & Kitchen", "Kitchen & Dining", "Kettles")
    assert product.naming_words == ("acorn", "electric", "kettle", "pack", "quiet", "boil")
    assert product.attributes == ("easy clean",)
    assert product.description == "A kettle that boils."
    assert product.features == ("BPA free", "Auto shut off")


def test_every_option_value_is_a_button_of_its_own(tmp_path: Path) -> None:
    (product,) = read_products(write(tmp_path, "items.json", [KETTLE]), None, None)
    assert product.options == {
        "color": ("red", "black | white"),
        "size": ("large",),
        "pattern": ("pattern red", "pattern description"),
    }


@pytest.mark.parametrize(
    ("pricing", "tag"), [("$19.99", "$19.99"), ("$1,234.00", "$1234"), (None, "$100"), ("", "$100"), ("n/a", "$100")]
)
def test_the_price_of_an_item(tmp_path: Path, pricing: str | None, tag: str) -> None:
    (product,) = read_products(write(tmp_path, "items.json", [item(pricing=pricing)]), None, None)
    assert product.price_tag == tag


def test_a_range_of_prices_is_one_price_in_every_process(tmp_path: Path) -> None:
    items = [item(asin=f"A{number}", pricing="$10.00 to $20.00") for number in range(50)]
    prices = [product.price for product in read_products(write(tmp_path, "items.json", items), None, None)]
    assert all(10 <= price <= 20 for price in prices) and len(set(prices)) > 40
    # Promised: the digest of an asin, and what numpy's generator draws for it.
    assert prices[0] == 15.35


def test_items_are_read_once_by_asin_and_up_to_a_number(tmp_path: Path) -> None:
    items = [item(), item(name="Again"), item(asin="nan"), item(asin="B07KETTLE1TOOLONG"), item(asin="b07kettle1")]
    catalogue = write(tmp_path, "items.json", [*items, item(asin="B2"), item(asin="B3")])
    assert [product.id for product in read_products(catalogue, None, None)] == ["B07KETTLE1", "B2", "B3"]
    assert [product.id for product in read_products(catalogue, None, 6)] == ["B07KETTLE1", "B2"]


# Goals


def test_an_instruction_becomes_a_goal(tmp_path: Path) -> None:
    products = read_products(write(tmp_path, "items.json", [KETTLE]), None, None)
    (goal,) = read_goals(write(tmp_path, "human.json", {"B07KETTLE1": [INSTRUCTION]}), products)
    assert goal.id == "B07KETTLE1:0"
    assert goal.wish == "I am looking for a quiet electric kettle that is bpa free. it should be red"
    assert goal.query == "quiet electric kettle bpa free red"
    assert goal.attributes == ("bpa free", "quiet boil")
    assert goal.options == ("red", "large")
    assert goal.price_limit in (30.0, 40.0, 50.0)
    assert evaluate(products[0], {"color": "red", "size": "large"}, goal, products[0]).score == 1.0


def test_goals_without_attributes_or_product_and_repeated_ones_are_left_out(tmp_path: Path) -> None:
    products = read_products(write(tmp_path, "items.json", [KETTLE]), None, None)
    written = {
        "B07KETTLE1": [
            {**INSTRUCTION, "instruction_attributes": []},
            INSTRUCTION,
            {**INSTRUCTION, "instruction": INSTRUCTION["instruction"].upper()},
        ],
        "B0OTHER": [INSTRUCTION],
    }
    assert [goal.id for goal in read_goals(write(tmp_path, "human.json", written), products)] == ["B07KETTLE1:1"]


def test_options_of_a_goal_may_be_given_by_name(tmp_path: Path) -> None:
    products = read_products(write(tmp_path, "items.json", [KETTLE]), None, None)
    named = {**INSTRUCTION, "instruction_options": {"color": "Black/White"}}
    (goal,) = read_goals(write(tmp_path, "human.json", {"B07KETTLE1": [named]}), products)
    assert goal.options == ("black | white",)


# What is not in the layout


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "catalogue must hold a list of items"),
        ([], "catalogue must hold a list of items"),
        ([KETTLE, {"asin": "B2"}], r"item 1 of .* has not: KeyError: 'name'"),
        ([item(pricing=3)], r"item 0 of .* has not: AttributeError"),
        ([item(customization_options={"Color": ["red"]})], r"item 0 of .* has not: TypeError"),
    ],
)
def test_a_catalogue_of_another_layout_is_refused(tmp_path: Path, content: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_products(write(tmp_path, "items.json", content), None, None)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([INSTRUCTION], "goals must hold an object by asin"),
        ({}, "goals must hold instructions for products of the catalogue"),
        ({"B07KETTLE1": [{"instruction": "buy"}]}, r"number 0 of B07KETTLE1 in .* has not: KeyError"),
    ],
)
def test_goals_of_another_layout_are_refused(tmp_path: Path, content: object, message: str) -> None:
    products = read_products(write(tmp_path, "items.json", [KETTLE]), None, None)
    with pytest.raises(ValueError, match=message):
        read_goals(write(tmp_path, "human.json", content), products)


def test_a_file_that_is_no_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "items.json"
    path.write_text("[{", encoding="utf-8")
    with pytest.raises(ValueError, match="must hold JSON; it does not"):
        read_products(path, None, None)


# The world on files


def files(folder: Path) -> dict[str, Any]:
    """A catalogue of sixty kettles in six colours, each wanted once."""
    colors = ("red", "black", "white", "green", "silver", "copper")
    items = [
        item(
            asin=f"B{number:09d}",
            name=f"Acorn {colors[number % 6]} model{number} Electric Kettle",
            pricing=f"${20 + number}.00",
            customization_options={"Size": [{"value": "large"}, {"value": "small"}]},
        )
        for number in range(60)
    ]
    goals = {
        entry["asin"]: [
            {
                "instruction": f"i need a large {colors[number % 6]} kettle, model{number}.",
                "instruction_attributes": [colors[number % 6]],
                "instruction_options": ["large"],
            }
        ]
        for number, entry in enumerate(items)
    }
    return {"catalogue": str(write(folder, "items.json", items)), "goals": str(write(folder, "human.json", goals))}


def test_the_world_keeps_the_contract_on_files(tmp_path: Path) -> None:
    parameters = files(tmp_path)
    report = check_world(WebShop(**parameters), parameters=parameters, oracle_success=1.0, count=20)
    assert report.passed, report.lines()


def test_task_ids_name_the_content_of_the_files_and_not_where_they_lie(tmp_path: Path) -> None:
    for name in ("here", "there", "other"):
        (tmp_path / name).mkdir()
    here, there, other = (files(tmp_path / name) for name in ("here", "there", "other"))
    content = json.loads(Path(other["catalogue"]).read_text(encoding="utf-8"))
    content[0]["pricing"] = "$21.00"
    Path(other["catalogue"]).write_text(json.dumps(content), encoding="utf-8")
    first, same, different = (WebShop(**files).tasks("train", 5) for files in (here, there, other))
    assert first == same
    assert not {task.id for task in first} & {task.id for task in different}
    assert WebShop(**here).attribution() is not None


def test_the_number_of_products_is_part_of_the_ids(tmp_path: Path) -> None:
    parameters = files(tmp_path)
    few = WebShop(**parameters, products=30)
    assert len(few.shop.products) == 30
    assert not {task.id for task in few.tasks("train", 5)} & {
        task.id for task in WebShop(**parameters).tasks("train", 5)
    }
