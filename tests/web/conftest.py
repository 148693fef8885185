"""A headless Chromium that trusts the log's CA and nothing else of ours, and a log with sessions to look at."""

import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from pagelab import PageLab


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageLab]:
    lab = PageLab(tmp_path_factory.mktemp("page"))
    lab.session = lab.ask()
    lab.hostile()
    lab.receipt()
    lab.found()
    yield lab
    lab.stop()


@pytest.fixture(scope="session")
def chromium(place: PageLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Debian's Chromium; elsewhere the one that `playwright install chromium` brought. Its trust store is a new one."""
    home = tmp_path_factory.mktemp("home")
    store = home / ".pki" / "nssdb"
    store.mkdir(parents=True)
    for command in (["-N", "--empty-password"], ["-A", "-n", "lab", "-t", "C,,", "-i", str(place.ca)]):
        subprocess.run(["certutil", "-d", f"sql:{store}", *command], check=True, capture_output=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            env={**os.environ, "HOME": str(home)},
            args=["--no-sandbox"] if os.geteuid() == 0 else [],  # Chromium's own sandbox refuses root
        )
        yield browser
        browser.close()


class Watched:
    """A page, and what its console, its policy and its network said against it."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.context, self.url = context, url
        self.complaints: list[str] = []
        self.asked: set[str] = set()
        self.page: Page = context.new_page()
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("request", lambda request: self.asked.add(request.url))

    def open(self, path: str) -> Page:
        self.page.goto(self.url + path)
        return self.page

    def sign_in(self, token: str) -> Page:
        page = self.open("/login")
        page.fill("#token", token)
        page.press("#token", "Enter")
        page.wait_for_selector("nav")
        return page


@pytest.fixture
def new(chromium: Browser, place: PageLab) -> Iterator[type[Watched]]:
    """Makes watched pages: `new(width=400, color_scheme="dark")`."""
    contexts: list[BrowserContext] = []

    def make(width: int = 1200, **options: object) -> Watched:
        contexts.append(chromium.new_context(viewport={"width": width, "height": 800}, **options))  # type: ignore[arg-type]  # playwright names each option
        return Watched(contexts[-1], place.url)

    yield make  # type: ignore[misc]  # a function that makes them stands for the class
    for context in contexts:
        context.close()
