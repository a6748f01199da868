"""The page at the service's address tells all that its OpenAPI document has, and loads nothing."""

from __future__ import annotations

import re
from html import unescape

import httpx
from service_samples import serving

from envs.service.offers import read_offers


def test_the_page_shows_each_world_route_and_field_without_a_script_or_a_foreign_file() -> None:
    with serving(*read_offers(["bandit", "textcraft"])) as url:
        answer, document = httpx.get(f"{url}/"), httpx.get(f"{url}/v2/openapi.json").json()
        worlds = httpx.get(f"{url}/v2/worlds").json()["worlds"]
        assert httpx.get(f"{url}/nowhere").json()["error"]["code"] == "unknown_route"
    page = unescape(answer.text)
    assert answer.headers["content-type"].startswith("text/html") and "<script" not in page
    assert set(re.findall(r"(?:href|src)='([^'#][^']*)'", page)) == {"/v2/openapi.json"}
    assert [world["id"] for world in worlds if f"<code>{world['id']}</code>" not in page] == []
    routes = [f"{method.upper()} {path}<" for path, methods in document["paths"].items() for method in methods]
    assert [route for route in routes if route not in page] == []
    anchors = set(re.findall(r"href='#([^']+)'", page))
    assert anchors <= set(re.findall(r"<h3 id='([^']+)'", page)) == set(document["components"]["schemas"])
    assert "Play the next action" in page and "<td>integer</td>" in page


def test_the_page_asks_for_the_token_of_the_server() -> None:
    with serving(*read_offers(["bandit"]), token="secret") as url:
        assert httpx.get(f"{url}/").status_code == 401
        assert httpx.get(f"{url}/", auth=("any", "secret")).status_code == 200
