"""A server's page in headless Chromium, driven through its debugging pipe, with Python's own library alone.

usage: page_browser.py BROWSER DIR URL [KEY]        with KEY: a server that asks for keys, and this one is for inference
"""
import json
import os
import subprocess
import sys
import time
import urllib.request

program, directory, url = sys.argv[1:4]
key = sys.argv[4] if len(sys.argv) > 4 else None


class Browser:
    """Chromium reads messages from descriptor 3 and writes to 4: JSON, each with a NUL behind it."""

    def __init__(self):
        take, self.out = os.pipe()
        self.back, give = os.pipe()

        def connect():
            os.dup2(take, 20), os.dup2(give, 21)
            os.dup2(20, 3), os.dup2(21, 4)

        flags = ["--headless", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe", "--user-data-dir=" + directory]
        flags += ["--no-sandbox"] if os.getuid() == 0 else []  # Chromium's own does not start for root
        self.process = subprocess.Popen([program, *flags], pass_fds=(3, 4), preexec_fn=connect, stderr=subprocess.DEVNULL)
        os.close(take), os.close(give)
        self.rest, self.count, self.session, self.complaints = b"", 0, None, []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.send("Log.enable")
        self.send("Runtime.enable")
        self.send("Page.navigate", url=url + "/")

    def send(self, method, **params):
        self.count += 1
        message = {"id": self.count, "method": method, "params": params}
        os.write(self.out, json.dumps({**message, **({"sessionId": self.session} if self.session else {})}).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                piece = os.read(self.back, 65536)
                assert piece, "the browser has ended"
                self.rest += piece
            text, self.rest = self.rest.split(b"\0", 1)
            answer = json.loads(text)
            if answer.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown") and answer["params"].get("entry", {}).get("source") != "network":
                self.complaints.append(answer["params"])
            if answer.get("id") == self.count:
                assert "error" not in answer, answer
                return answer["result"]

    def value(self, expression):
        return self.send("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def wait(self, expression):
        end = time.time() + 300
        while not self.value(expression):
            assert time.time() < end, (expression, self.value("document.body.innerText"), self.complaints)
            time.sleep(0.05)

    def ask(self, prompt, then=""):
        self.value(f"at('told').textContent = ''; at('prompt').value = {json.dumps(prompt)}; at('tokens').value = 40; at('seed').value = 7; at('send').click(); {then}")
        self.wait("at('told').textContent !== '' || document.querySelector('#talk .error') !== null")


def api(prompt):
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 40, "seed": 7, "temperature": 1}
    headers = {"Content-Type": "application/json", "X-Api-Key": key or ""}
    with urllib.request.urlopen(urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), headers)) as answer:
        return json.loads(answer.read())["choices"][0]["text"]


def check(browser):
    if key is not None:
        browser.wait("document.readyState === 'complete' && at('told').textContent.startsWith('No models, 401')")
        browser.wait("!busy && !jobs[1].allowed && !jobs[2].allowed")
        # The refusal of the key before, which arrives after the change, says nothing about this one.
        browser.value("window.plain = fetch; window.fetch = async (...what) => { const answer = await plain(...what); "
                      "if (what[0].startsWith('/metrics')) await new Promise((go) => { window.go = go; }); return answer; }; "
                      "jobs[2].allowed = true; refresh()")
        browser.wait("window.go !== undefined")
        browser.value(f"at('key').value = {json.dumps(key)}; at('key').dispatchEvent(new Event('change')); window.fetch = plain; go()")
        browser.wait("at('scraped').textContent.startsWith('No metrics, 403')")
    browser.wait("document.readyState === 'complete' && at('model').value === 'tiny' && at('health').textContent === 'ready'")
    assert browser.value("at('kind').value") == "completion"
    browser.ask("apple")
    assert browser.value("at('told').textContent").startswith("First text after "), browser.value("document.body.innerText")
    assert browser.value("[...at('talk').children].map((p) => p.textContent)") == ["apple", api("apple")]
    browser.ask("apple", "at('stop').click();")
    assert browser.value("at('told').textContent") == "Stopped."
    browser.ask("<img src=x onerror=alert(1)><b>")
    assert browser.value("at('talk').children[4].textContent") == "<img src=x onerror=alert(1)><b>"
    assert browser.value("at('talk').querySelectorAll('img, b').length") == 0
    # A model of a table has a field for each column, one of images a file, and neither has a prompt.
    visible = "[...at('ask').querySelectorAll('label')].filter((l) => l.offsetParent !== null).map((l) => l.firstChild.textContent.trim())"
    browser.value("busy = true; show_models([{id: 'prices', info: {columns: [{name: 'rooms'}, {name: 'city'}]}}, {id: 'digits', info: {image: [1, 8, 8]}}])")
    assert browser.value(visible) == ["Model", "rooms", "city"], browser.value(visible)
    browser.value("at('model').value = 'digits'; choose_kind()")
    assert browser.value(visible) == ["Model", "Image"], browser.value(visible)
    browser.value("busy = false; refresh()")
    browser.wait("at('model').value === 'tiny'")
    if key is None:
        browser.wait("at('scraped').textContent.startsWith('Latencies and rates are of the last ')")
        figures = "Object.fromEntries([...at('figures').children].map((f) => [f.querySelector('dt').textContent, f.querySelector('dd').textContent]))"
        browser.wait("figures[0].past.some(Number.isFinite) && figures[4].past.some(Number.isFinite)")  # of the requests above
        shown = browser.value(figures)
        assert shown["Workers"] == "1" and shown["Queue"] == "0", shown
        assert browser.value("[...at('workers').querySelectorAll('td')].map((c) => c.textContent)")[0] == "tiny"
        drift = browser.value("[...at('drift').querySelectorAll('tbody tr')].map((r) => [...r.children].map((c) => c.textContent))")
        assert drift and any(row[-1] == "yes" for row in drift), drift
        assert browser.value("figures[0].line.getAttribute('points')") != ""
        assert not browser.complaints, browser.complaints
    origins = browser.value("[...new Set(performance.getEntriesByType('resource').map((e) => new URL(e.name).origin))]")
    assert origins == [url], origins


browser = Browser()
try:
    check(browser)
finally:
    browser.process.kill()
    browser.process.wait()
