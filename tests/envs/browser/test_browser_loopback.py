import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest

from envs.browser import miniwob
from envs.browser.loopback import Folder, Loopback, PageRequest, Response, page, redirect


@pytest.fixture
def server() -> Iterator[Loopback]:
    def echo(request: PageRequest) -> Response:
        if request.path == "/away":
            return redirect("/there")
        return page(f"{request.method} {request.path} {request.query} {request.form} {request.cookies}")

    running = Loopback({"echo.test": echo, "other.test": lambda _: page("other")})
    yield running
    running.close()


def ask(
    server: Loopback, host: str, method: str, path: str, body: str | None = None, **headers: str
) -> tuple[int, str, str | None]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request(method, path, body, {"Host": host, **headers})
    answer = connection.getresponse()
    told = (answer.status, answer.read().decode(), answer.getheader("Location"))
    connection.close()
    return told


def test_sites_are_told_apart_by_their_host_names(server: Loopback) -> None:
    assert ask(server, "other.test", "GET", "/")[1] == "other"
    assert ask(server, f"other.test:{server.port}", "GET", "/")[1] == "other"
    assert ask(server, "nowhere.test", "GET", "/")[0] == 404
    assert server.hosts == {"echo.test": server.port, "other.test": server.port}


def test_addresses_forms_and_cookies_are_read(server: Loopback) -> None:
    _, text, _ = ask(server, "echo.test", "GET", "/a%20b?q=x+y&q=z&empty=", Cookie="shop=7; other=8")
    assert text == "GET /a b {'q': 'z', 'empty': ''} {} {'shop': '7', 'other': '8'}"
    _, text, _ = ask(server, "echo.test", "POST", "/p", "text=%3Cb%3E+%26")
    assert text == "POST /p {} {'text': '<b> &'} {}"


def test_a_form_is_followed_by_a_get(server: Loopback) -> None:
    assert ask(server, "echo.test", "POST", "/away", "x=1") == (303, "", "/there")


def test_a_form_that_is_too_long_is_not_read(server: Loopback) -> None:
    status, text, _ = ask(server, "echo.test", "POST", "/p", "x" * 10, **{"Content-Length": "99999999"})
    assert (status, "too long" in text) == (413, True)


def test_a_folder_serves_what_pages_need_and_nothing_outside_it(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "page.html").write_text("hello")
    (root / "notes.txt").write_text("not for pages")
    (tmp_path / "secret.html").write_text("secret")
    (root / "link.html").symlink_to(tmp_path / "secret.html")
    site = Folder(root)
    assert site(PageRequest("GET", "/page.html")) == Response(b"hello")
    for path in ("/notes.txt", "/missing.html", "/../secret.html", "/link.html", "/", "//etc/passwd"):
        assert site(PageRequest("GET", path)).status == 404


def test_the_pages_of_every_kind_are_in_the_package() -> None:
    miniwob.require_package()
    site = miniwob.site()
    for kind in miniwob.KINDS:
        assert b"core.startEpisode" in site(PageRequest("GET", f"/miniwob/{kind}.html")).body


def test_other_pages_than_the_ids_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(miniwob, "VERSION", "1.0.0")
    with pytest.raises(ValueError, match=r"must come from miniwob 1\.0\.0; found 1\.1\.0"):
        miniwob.require_package()
