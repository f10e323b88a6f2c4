"""The web console in a browser: against the demo model, and against a model without weights that answers what a test wants. NEREID_BROWSER names
Chromium; without it every test here is skipped (`scripts/test --all` sets it)."""
import json
import os
import shutil

import pytest
from devtools import Browser
from python_support import python_flags
from test_openai import ROOT, TEMPLATE

pytestmark = pytest.mark.skipif(not os.environ.get("NEREID_BROWSER"), reason="NEREID_BROWSER names no browser")


@pytest.fixture(scope="module")
def server(start_server, chat_repository):
    repository = chat_repository(TEMPLATE, "--decoupled")
    shutil.copytree(ROOT / "tests/e2e/openai_models/oracle", repository / "oracle")
    return start_server(repository, python_flags("--console=on", "--model-control-mode=explicit", "--load-model=ensemble", "--load-model=oracle"),
                        environment={"ORACLE_CANCELLED": str(repository.parent / "cancelled")})


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    running = Browser(os.environ["NEREID_BROWSER"], tmp_path_factory.mktemp("profile"))
    yield running
    running.close()


@pytest.fixture
def page(browser, server):
    browser.open(server.url + "/console/")
    browser.wait_for("document.querySelectorAll('#model option').length === 2 && document.querySelector('#form').value === 'chat'")
    yield browser
    assert browser.errors == []


def choose(page, model):
    page.fill("#model", model)
    page.wait_for(f"document.querySelector('#form').value === '{'chat' if model == 'ensemble' else 'completion'}'")
    page.fill("#form", "chat")


def send(page, message):
    page.fill("#message", message)
    page.click("#send")


ANSWERED = "document.querySelector('#status').textContent.startsWith('The answer is complete')"


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_conversation_is_answered_with_the_probabilities_of_its_tokens(page, is_stream):
    for name, value in (("max_tokens", "8"), ("temperature", "0"), ("system", "Tell a story.")):
        page.fill(f"#{name}", value)
    page.click("#logprobs")
    if not is_stream:
        page.click("#stream")
    send(page, "Once upon a time")
    page.wait_for(ANSWERED)
    tokens = page.evaluate("[...document.querySelectorAll('.assistant .token')].map((each) => [each.textContent, each.className, each.title])")
    assert len(tokens) == 8 and all(kind.startswith("token p") and title.endswith(" %") for _, kind, title in tokens)
    assert "".join(text for text, _, _ in tokens) == page.text(".assistant .text")
    page.evaluate("document.querySelector('.assistant .token').click()")
    assert "likely here" in page.text("#token-detail") and page.text("#usage").endswith("8 output tokens")
    first = page.text("#conversation")
    send(page, "And then?")
    page.wait_for(f"document.querySelectorAll('.assistant').length === 2 && {ANSWERED}")
    assert page.text("#conversation").startswith(first)
    page.click("#show-prompt")
    page.wait_for("document.querySelectorAll('.prompt').length === 1")
    assert "Tell a story." in page.text(".prompt .text") and "And then?" in page.text(".prompt .text")
    page.click("#reset")
    assert page.text("#conversation") == ""


def test_the_text_of_a_model_is_shown_and_never_interpreted(page):
    choose(page, "oracle")
    attack = "<img src=x onerror=\"window.forged=1\"><script>window.forged=1</script><b>bold</b>"
    pieces = [{"reasoning": [attack], "text_output": [attack], "token_texts": [attack], "output_log_probs": [-0.5], "top_token_texts": [[attack, "z"]],
               "top_logprobs": [[-0.5, -2.0]]},
              {"text_output": [""], "tool_calls": [json.dumps([{"index": 0, "id": "c", "type": "function", "function": {"name": attack, "arguments": attack}}])],
               "finish_reason": ["stop"]}]
    page.click("#logprobs")
    page.fill("#tools", json.dumps([{"type": "function", "function": {"name": "f", "parameters": {}}}]))
    send(page, json.dumps(pieces))
    page.wait_for(ANSWERED)
    page.click(".assistant .token")
    shown = page.text(".assistant")
    assert shown.count(attack) == 4 and attack.replace('"', '\\"') in page.text("#token-detail")
    assert page.evaluate("document.querySelectorAll('main img, main script, main b').length") == 0
    assert page.evaluate("window.forged") is None
    # Even a fault in a script could not run a text: the policy of the page refuses it.
    refused = page.evaluate("(() => { try { document.body.innerHTML = '<b>x</b>'; return 'run'; } catch (error) { return error.name; } })()")
    assert refused == "TypeError"
    page.errors.clear()


def test_an_answer_is_stopped_by_its_user_and_cancelled_by_an_operator(page):
    choose(page, "oracle")
    send(page, "forever")
    page.wait_for("document.querySelector('.assistant .text').textContent.includes('more ')")
    page.click("#stop")
    page.wait_for("document.querySelector('#status').textContent === 'The answer was stopped'")
    send(page, "forever")
    page.wait_for("document.querySelectorAll('.assistant').length === 2")
    page.click("#tab-requests")
    page.wait_for("document.querySelectorAll('#request-rows tr').length === 1")
    row = page.evaluate("[...document.querySelector('#request-rows tr').cells].map((each) => each.textContent)")
    assert row[0].startswith("chatcmpl-") and row[1:3] == ["oracle", "/v1/chat/completions"] and "forever" not in "".join(row)
    page.click("#request-rows button")
    page.wait_for("document.querySelectorAll('#request-rows tr').length === 0")
    page.click("#tab-playground")
    page.wait_for("!document.querySelector('#send').disabled")


def test_models_are_unloaded_and_loaded(page):
    page.click("#tab-models")
    state = "[...document.querySelectorAll('#model-rows tr')].find((row) => row.cells[0].textContent === 'oracle')?.cells[2].textContent"
    page.wait_for(f"{state} === 'READY'")
    page.click("[aria-label='Unload oracle']")
    page.wait_for(f"{state} === 'UNAVAILABLE'")
    page.click("[aria-label='Load oracle']")
    page.wait_for(f"{state} === 'READY' && document.querySelector('#status').textContent === 'oracle: load is complete'")


def test_the_load_is_plotted(page):
    page.fill("#max_tokens", "40")
    send(page, "Once upon a time")
    page.click("#tab-load")
    page.wait_for("document.querySelectorAll('.plot').length === 6")
    value = "document.querySelectorAll('.plot output')[{}].textContent"
    page.wait_for(f"Number({value.format(1)}) > 0")
    page.wait_for(f"{value.format(2)}.startsWith('p50 ')")
    assert page.evaluate("document.querySelectorAll('.plot path')[1].getAttribute('d')").startswith("M")
    assert page.evaluate("document.querySelectorAll('.plot svg')[1].getAttribute('aria-label')").startswith("Output tokens a second: ")


def test_an_error_of_the_server_is_shown(page):
    choose(page, "ensemble")
    page.fill("#temperature", "3")
    page.evaluate("document.querySelector('#prompt-form').noValidate = true")
    send(page, "hello")
    page.wait_for("document.querySelector('#status').classList.contains('error')")
    assert "400: temperature" in page.text("#status") and page.evaluate("document.querySelector('#status').getAttribute('aria-live')") == "polite"


def test_the_console_is_used_with_the_keyboard_and_named_for_screen_readers(page):
    page.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.press("Tab")
    assert page.evaluate("document.activeElement.id") == "tab-playground"
    page.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == "tab-models" and page.evaluate("document.querySelector('#playground').hidden")
    page.press("End")
    assert page.evaluate("document.activeElement.id") == "tab-requests" and not page.evaluate("document.querySelector('#requests').hidden")
    page.press("Home")
    nodes = page.send("Accessibility.getFullAXTree")["nodes"]
    wanted = {"textbox", "combobox", "button", "checkbox", "spinbutton", "tab", "log"}
    controls = [(node["role"]["value"], node.get("name", {}).get("value")) for node in nodes if not node.get("ignored") and node["role"]["value"] in wanted]
    assert len(controls) > 20 and all(name for _, name in controls), controls


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_enough_contrast(page, scheme):
    """WCAG 2 asks for 4.5 between a text and its background."""
    page.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    colours = page.evaluate("""(() => {
      const style = getComputedStyle(document.documentElement);
      const names = ['paper', 'ink', 'faint', 'panel', 'accent', 'on-accent', 'error', ...Array.from({length: 10}, (_, level) => `p${level}`)];
      return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    })()""")

    def luminance(name):
        parts = [int(colours[name][at:at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    assert (luminance("paper") > 0.5) == (scheme == "light")
    pairs = [("ink", "paper"), ("ink", "panel"), ("faint", "paper"), ("error", "paper"), ("on-accent", "accent"), *[("ink", f"p{level}") for level in range(10)]]
    for text, ground in pairs:
        darker, lighter = sorted((luminance(text), luminance(ground)))
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5, (text, ground)
