"""The HTML report opens offline in a browser: no request, no console error, charts drawn, filters and zoom at work."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from bench.make_log import EPISODES, write_log
from kvdiag.pipeline import postmortem
from kvdiag.reports.html_report import render
from tests.conftest import FIXTURES

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here; .ci/run installs it")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("html")
    log = folder / "server.log"
    write_log(log, size=10**12, ranks=2, episodes=EPISODES, once=True, steps=(2000,))
    result = postmortem([str(log)])
    target = folder / "report.html"
    target.write_text(render(result), encoding="utf-8")
    return target, result


@pytest.fixture(scope="module")
def tab(page):
    from playwright.sync_api import sync_playwright

    target, _ = page
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        opened = browser.new_page(viewport={"width": 390, "height": 800}, color_scheme="dark")
        opened.problems, opened.requests = [], []
        opened.on("console", lambda message: opened.problems.append(message.text))
        opened.on("pageerror", lambda error: opened.problems.append(str(error)))
        opened.on("request", lambda request: opened.requests.append(request.url))
        opened.goto(target.as_uri())
        yield opened
        browser.close()


@needs_browser
def test_it_loads_with_no_network_and_no_console_message(page, tab):
    assert tab.problems == []
    assert tab.requests == [page[0].as_uri()]


@needs_browser
def test_charts_are_drawn_and_fit_a_phone(tab):
    assert tab.locator(".board[data-drawn=yes]").count() == 1
    assert tab.locator("svg[data-series] path").count() >= 3
    assert tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@needs_browser
def test_a_shared_cursor_and_zoom_follow_the_keyboard(tab):
    chart = tab.locator("svg[data-series]").first
    chart.focus()
    before = tab.locator("svg[data-series] text").all_text_contents()
    for key in ("ArrowRight", "ArrowRight", "+"):
        chart.press(key)
    assert "usage" in tab.locator(".reading").text_content()
    assert tab.locator("svg[data-series] text").all_text_contents() != before
    tab.locator(".reset").click()
    assert tab.locator("svg[data-series] text").all_text_contents() == before


@needs_browser
def test_filters_hide_findings_of_a_level(tab):
    for level in ("error", "warning", "note"):
        findings = tab.locator(f".finding.{level}")
        if findings.count():
            tab.locator(f".filters input[value={level}]").uncheck()
            assert not findings.first.is_visible()
            tab.locator(f".filters input[value={level}]").check()
            assert findings.first.is_visible()


def test_its_numbers_are_those_of_the_json(page):
    from kvdiag.reports import postmortem_json

    target, result = page
    text = target.read_text(encoding="utf-8")
    data = json.loads(postmortem_json.render(result))
    for phase in data["starts"][0]["phases"]:
        assert phase["from"] in text
    for check in data["starts"][0]["checks"]:
        for side in ("observed", "recomputed"):
            if check[side]:
                assert f"{check[side]['low']:,}" in text


def test_nothing_of_the_log_becomes_markup_and_nothing_is_fetched(tmp_path):
    log = tmp_path / "hostile.log"
    source = (FIXTURES / "scenarios" / "kimi-k2.5-f0.88" / "server.log").read_text()
    log.write_text(source.replace("moonshotai/Kimi-K2.5", "</script><img src=http://x.invalid onerror=alert(1)>\x1b]8;;x\x07"))
    text = render(postmortem([str(log)]))
    assert "<img" not in text
    assert "\x1b" not in text
    assert not re.search(r"<[a-z]+[^>]*(?:src|href)=", text)
    assert "default-src &#39;none&#39;" in text or "default-src 'none'" in text
