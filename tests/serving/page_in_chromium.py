#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the page of `hydrant serve` in a headless Chromium: what a reader sees and does.

Needs nothing but Python and a Chromium, such as Debian's package chromium-headless-shell. Without one the exit code is
77, which ctest counts as skipped. With --pictures the script tests nothing and writes pictures of the page instead.
"""

from __future__ import annotations

import argparse
import re
import sys
import unittest
from pathlib import Path
from typing import Any

from browser import Browser, Tab, find_browser
from served import Server

SKIPPED = 77
MODELS = Path(__file__).resolve().parents[2] / "models"
HEADS = MODELS / "tale-14m-hydra-pp"
PROMPT = "Once upon a time there was a little hen who"
# Wide enough that a drawing shows what a tree is. `auto` may choose to draft nothing.
TREE = "[[0],[1],[2],[0,0],[0,1],[1,0],[0,0,0],[0,0,1],[0,0,0,0]]"
FLAGS = ("--model", str(MODELS / "tale-14m"), "--draft", str(HEADS), "--weights", "w8a8", "--tree", TREE,
         "--draft-vocab", str(HEADS / "draft_vocab_stories.json"),
         "--threads", "1")  # two would wait for the browser on a machine with two cores
SEED = "1"  # the same tokens are drafted and accepted in each run

IS_READY = "document.querySelector('#model-line').textContent.includes('tale-14m')"
IS_DONE = "/ a step\\.$/.test(document.querySelector('#status').textContent)"
# Roles that readers act on, as https://www.w3.org/TR/wai-aria-1.2/ names them.
CONTROLS = {"button", "textbox", "searchbox", "radio", "checkbox", "combobox", "spinbutton", "slider", "link", "switch"}
# Elements that reach out of the window to the right, unless they scroll in a box of their own or cannot be seen.
TOO_WIDE = """(() => {
  const width = document.documentElement.clientWidth;
  const isClipped = (node) => {
    for (let at = node.parentElement; at && at !== document.body; at = at.parentElement) {
      if (getComputedStyle(at).overflowX !== 'visible') return true;
    }
    return false;
  };
  return [...document.querySelectorAll('body *')]
    .filter((node) => node.getBoundingClientRect().right > width + 0.5 && !isClipped(node))
    .map((node) => node.outerHTML.slice(0, 120));
})()"""
# Cards that lie over one another.
OVERLAPS = """(() => {
  const cards = [...document.querySelectorAll('.card:not([hidden])')].map((card) => card.getBoundingClientRect());
  const areSeparate = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
  return cards.flatMap((a, i) => cards.slice(i + 1).filter((b) => !areSeparate(a, b))).length;
})()"""
# Tokens whose text has less contrast to their ground than WCAG 2.2 asks for (4.5).
WEAK_TOKENS = """(() => {
  const levels = (colour) => colour.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const light = (colour) => {
    const [r, g, b] = levels(colour).map((c) => c / 255)
      .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  return [...document.querySelectorAll('.legend .token')].map((node) => {
    const style = getComputedStyle(node);
    const ground = style.backgroundColor === 'rgba(0, 0, 0, 0)'
      ? getComputedStyle(document.querySelector('.card')).backgroundColor : style.backgroundColor;
    const [low, high] = [light(style.color), light(ground)].sort((a, b) => a - b);
    return {name: node.className, contrast: (high + 0.05) / (low + 0.05)};
  }).filter(({contrast}) => contrast < 4.5);
})()"""

program = Path("build/release/hydrant")


def open_page(browser: Browser, server: Server, width: int = 1440, height: int = 1000) -> Tab:
    """The page in its mode for completions, once it has found the model."""
    tab = browser.open(f"{server.url}/", width, height)
    tab.wait_for(IS_READY)
    tab.click("label:has(input[value=completion])")
    set_fields(tab, seed=SEED)
    return tab


def set_fields(tab: Tab, **values: str) -> None:
    """Fills fields of the settings, as a reader does."""
    tab.click("#settings-toggle")
    for name, value in values.items():
        tab.click(f"[name={name}]")
        tab.evaluate("document.activeElement.select()")
        tab.type(value)
    tab.evaluate("scrollTo(0, 0)")
    tab.click("#settings-toggle")


def send(tab: Tab, text: str) -> None:
    tab.click("#prompt")
    tab.evaluate("document.activeElement.select()")
    tab.type(text)
    tab.click("#send")
    tab.wait_for(IS_DONE)


class PageTest(unittest.TestCase):
    server: Server
    browser: Browser

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = cls.enterClassContext(Server(program, *FLAGS))
        cls.browser = cls.enterClassContext(Browser(find_browser() or ""))

    def setUp(self) -> None:
        self.tab = open_page(self.browser, self.server)

    def tearDown(self) -> None:
        self.assertEqual(self.complaints(), [])
        self.tab.close()

    def complaints(self) -> list[Any]:
        """What went wrong on the way, wherever the reader went: errors in the console, requests that failed or left
        this server."""
        found: list[Any] = [event for event in self.tab.events("Runtime.consoleAPICalled")
                            if event["type"] in ("error", "warning", "assert")]
        found += self.tab.events("Runtime.exceptionThrown")
        found += [event for event in self.tab.events("Log.entryAdded")
                  if event["entry"]["level"] in ("error", "warning")]
        found += [event for event in self.tab.events("Network.loadingFailed")]
        found += [event["response"]["url"] for event in self.tab.events("Network.responseReceived")
                  if event["response"]["status"] >= 400]
        urls = [event["request"]["url"] for event in self.tab.events("Network.requestWillBeSent")]
        return found + [url for url in urls if not url.startswith((f"{self.server.url}/", "data:"))]

    def number_at(self, selector: str) -> float:
        text = self.tab.evaluate(f"document.querySelector('{selector}').textContent")
        self.assertRegex(text, r"^[\d,.]+")
        return float(re.sub(r"[^\d.]", "", text))

    def test_a_reply_streams_token_by_token(self) -> None:
        self.tab.evaluate("""(() => {
          window.lengths = new Set();
          const list = document.querySelector('#completion-turns');
          const look = () => { lengths.add(list.querySelector('.reply')?.textContent.length ?? 0); };
          new MutationObserver(look).observe(list, {childList: true, subtree: true});
        })()""")
        send(self.tab, PROMPT)
        self.assertGreater(self.tab.evaluate("lengths.size"), 3, "the text is to grow in several steps")
        kinds = self.tab.evaluate("[...document.querySelectorAll('.reply .token')].map((node) => node.className)")
        self.assertIn("token k-base", kinds)
        self.assertIn("token k-d1", kinds)
        self.assertNotIn("token k-plain", kinds)

    def test_the_tree_of_a_step_shows_what_was_accepted(self) -> None:
        send(self.tab, PROMPT)
        self.assertRegex(self.tab.evaluate("document.querySelector('#step-place').textContent"), r"^step (\d+) of \1$")
        for _ in range(20):  # some steps accept nothing
            if self.tab.evaluate("document.querySelector('.n-kept') !== null"):
                break
            self.tab.click("#step-back")
        count = "document.querySelectorAll('#tree-box %s').length"
        self.assertGreater(self.tab.evaluate(count % ".n-kept"), 0)
        self.assertEqual(self.tab.evaluate(count % ".n-kept"), self.tab.evaluate(count % ".e-kept"))
        self.assertEqual(self.tab.evaluate(count % ".n-root"), 1)
        self.assertGreater(self.tab.evaluate(count % ".n-left"), 0)
        self.assertRegex(self.tab.evaluate("document.querySelector('#tree-caption').textContent"),
                         r"^Tree of 9 tokens drafted by heads, [1-4] accepted: ")

    def test_a_token_leads_to_the_tree_of_its_step(self) -> None:
        send(self.tab, PROMPT)
        self.tab.click(".reply .k-d1")
        self.assertFalse(self.tab.evaluate("document.querySelector('#tip').hidden"))
        text = self.tab.evaluate("document.querySelector('#tip').textContent")
        self.assertIn("depth 1 · drafted by heads", text)
        place = self.tab.evaluate("document.querySelector('#step-place').textContent")
        self.assertEqual(place.split()[1], text.split()[-1])

    def test_figures_and_charts_are_of_this_reply(self) -> None:
        send(self.tab, PROMPT)
        self.assertGreater(self.number_at("#per-step"), 1)
        self.assertGreater(self.number_at("#per-second"), 0)
        self.assertGreater(self.number_at("#first-token"), 0)
        charts = "[...document.querySelectorAll('.chart path.line-0')].map((line) => line.getAttribute('d')).join(' ')"
        before = self.tab.evaluate(charts)
        self.tab.wait_for(f"{charts} !== {before!r}")  # they move with the time
        self.tab.wait_for("document.querySelectorAll('.chart .bar-depth').length > 0")
        self.assertGreater(self.tab.evaluate("document.querySelectorAll('.charts figure:not([hidden])').length"), 3)

    def test_plain_decoding_gives_the_same_text(self) -> None:
        send(self.tab, PROMPT)
        self.tab.click("#compare")
        self.tab.wait_for("document.querySelector('.verdict')")
        self.assertIn("Both texts are equal.", self.tab.evaluate("document.querySelector('.verdict').textContent"))

    def test_a_chat_remembers_its_turns(self) -> None:
        self.tab.click("label:has(input[value=chat])")
        for text in ("Hello, how are you?", "Tell me more."):
            send(self.tab, text)
        self.assertEqual(self.tab.evaluate("document.querySelectorAll('#chat-turns .turn').length"), 2)
        bodies = [event["request"]["postData"] for event in self.tab.events("Network.requestWillBeSent")
                  if event["request"]["url"].endswith("/v1/chat/completions")]
        self.assertEqual([body.count('"role"') for body in bodies], [1, 3])

    def test_the_keyboard_alone_can_send(self) -> None:
        self.tab.evaluate("document.activeElement.blur()")
        self.tab_to("#prompt")
        self.tab.type(PROMPT)
        self.tab_to("#send")
        self.tab.press("Enter", "\r")
        self.tab.wait_for(IS_DONE)
        self.tab.evaluate("document.querySelector('#status').textContent = ''")
        self.tab_to("#prompt")
        self.tab.press("Enter", "\r")  # in the text field, too
        self.tab.wait_for(IS_DONE)
        self.tab_to(".reply .token")
        self.tab.press("ArrowRight")
        self.assertTrue(self.tab.evaluate("document.activeElement.matches('.reply .token:nth-child(2)')"))
        self.assertFalse(self.tab.evaluate("document.querySelector('#tip').hidden"))

    def tab_to(self, selector: str) -> None:
        for _ in range(60):
            self.tab.press("Tab")
            if self.tab.evaluate(f"document.activeElement.matches('{selector}')"):
                return
        self.fail(f"60 times Tab do not reach {selector}")

    def test_every_control_has_a_name(self) -> None:
        self.tab.click("#settings-toggle")
        send(self.tab, PROMPT)
        nodes = [node for node in self.tab.call("Accessibility.getFullAXTree")["nodes"]
                 if not node["ignored"] and node["role"]["value"] in CONTROLS]
        self.assertGreater(len(nodes), 20)
        unnamed = [node["role"]["value"] for node in nodes if not node.get("name", {}).get("value", "").strip()]
        self.assertEqual(unnamed, [])

    def test_nothing_is_too_wide_for_a_phone(self) -> None:
        self.tab.resize(390, 844, 2, mobile=True)
        self.assertEqual(self.tab.evaluate(TOO_WIDE), [])
        self.tab.click("#settings-toggle")
        send(self.tab, PROMPT + " " + "said" * 40)
        self.tab.click("#compare")
        self.tab.wait_for("document.querySelector('.verdict')")
        self.assertEqual(self.tab.evaluate(TOO_WIDE), [])
        self.assertLessEqual(self.tab.evaluate("document.documentElement.scrollWidth"), 390)

    def test_no_card_covers_another(self) -> None:
        send(self.tab, PROMPT)
        for width, height in ((1440, 900), (1100, 720), (800, 1000), (390, 844)):
            self.tab.resize(width, height)
            for place in (0, 100, 1000, 9999):
                self.tab.evaluate(f"scrollTo(0, {place})")
                self.tab.pause(0.1)
                self.assertEqual(self.tab.evaluate(OVERLAPS), 0, f"{width} x {height}, scrolled by {place}")

    def test_tokens_can_be_read_by_day_and_by_night(self) -> None:
        grounds = []
        for scheme in ("light", "dark"):
            self.tab.prefer(scheme)
            self.assertEqual(self.tab.evaluate(WEAK_TOKENS), [])
            grounds.append(self.tab.evaluate("getComputedStyle(document.body).backgroundColor"))
        self.assertNotEqual(grounds[0], grounds[1])


# Name, width, height and pixels for each of them.
SIZES = (("page", 1200, 912, 1.5), ("whole", 1440, 1600, 1), ("phone", 390, 844, 2))


def write_pictures(folder: Path) -> None:
    """Pictures of the page after some replies, by day and by night; page-light.webp is docs/pictures/page.webp."""
    folder.mkdir(parents=True, exist_ok=True)
    with Server(program, *FLAGS) as server, Browser(find_browser() or "") as browser:
        tab = open_page(browser, server)
        set_fields(tab, temperature="0.5", max_tokens="100", lookup="4")
        for seed in ("5", "6", "7", SEED):  # the charts are to have something to show
            set_fields(tab, seed=seed)
            tab.click("#clear")
            send(tab, PROMPT)
            tab.pause(5)
        for _ in range(40):
            if tab.evaluate("document.querySelectorAll('.n-kept').length > 1 && document.querySelector('.n-left')"):
                break
            tab.click("#step-back")
        tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
        tab.evaluate("document.activeElement.blur()")
        for scheme in ("light", "dark"):
            tab.prefer(scheme)
            for name, width, height, scale in SIZES:
                tab.resize(width, height, scale, mobile=width < 500)
                tab.evaluate("scrollTo(0, 0)")
                tab.pause(1.5)
                tab.picture(folder / f"{name}-{scheme}.webp")


def main() -> None:
    global program
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=program, help="the program to test (default: %(default)s)")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="where to write pictures of the page")
    parser.add_argument("tests", nargs="*", help="names as PageTest.test_every_control_has_a_name (default: all)")
    options = parser.parse_args()
    program = options.program
    if find_browser() is None:
        print("skipped: no Chromium here; Debian has it as the package chromium-headless-shell")
        sys.exit(SKIPPED)
    if options.pictures:
        write_pictures(options.pictures)
    else:
        unittest.main(argv=["page_in_chromium.py", *options.tests], verbosity=2)


if __name__ == "__main__":
    main()
