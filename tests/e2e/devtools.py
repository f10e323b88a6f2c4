"""A browser without a window, driven over the DevTools protocol on a pipe."""
import json
import os
import subprocess
import threading
import time


class Browser:
    """One page. `errors` are what its scripts threw, and what the browser refused to run."""

    def __init__(self, program, profile):
        read_commands, self._commands = os.pipe()
        self._replies, write_replies = os.pipe()
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
                 "--remote-debugging-pipe", f"--user-data-dir={profile}"]

        def place_pipes():  # the browser expects them as descriptors 3 and 4
            spare = (os.dup(read_commands), os.dup(write_replies))
            os.dup2(spare[0], 3)
            os.dup2(spare[1], 4)

        self._process = subprocess.Popen([program, *flags, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, close_fds=False,
                                         preexec_fn=place_pipes)
        os.close(read_commands)
        os.close(write_replies)
        self.errors = []
        self._next_id = 0
        self._answers = {}
        self._arrived = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()
        target = next(each for each in self._send("Target.getTargets")["targetInfos"] if each["type"] == "page")
        self._session = self._send("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Accessibility"):
            self.send(f"{domain}.enable")

    def _read(self):
        rest = b""
        while block := os.read(self._replies, 1 << 16):
            rest += block
            *messages, rest = rest.split(b"\0")
            for text in messages:
                message = json.loads(text)
                with self._arrived:
                    if "id" in message:
                        self._answers[message["id"]] = message
                    elif message["method"] == "Runtime.exceptionThrown":
                        self.errors.append(json.dumps(message["params"]["exceptionDetails"]))
                    elif message["method"] == "Log.entryAdded":
                        entry = message["params"]["entry"]
                        if entry["level"] == "error" and entry["source"] != "network":  # an HTTP error is an answer
                            self.errors.append(entry["text"])
                    self._arrived.notify_all()

    def _send(self, method, session=None, **params):
        self._next_id += 1
        message = {"id": self._next_id, "method": method, "params": params, **({"sessionId": session} if session else {})}
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        with self._arrived:
            assert self._arrived.wait_for(lambda: message["id"] in self._answers, timeout=60), f"no answer to {method}"
            answer = self._answers.pop(message["id"])
        assert "error" not in answer, answer
        return answer["result"]

    def send(self, method, **params):
        return self._send(method, self._session, **params)

    def evaluate(self, script):
        """The value of an expression, which may be a promise."""
        result = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait_for(self, script):
        deadline = time.monotonic() + 60
        while not (value := self.evaluate(script)):
            assert time.monotonic() < deadline, f"never true: {script}; the page: {self.evaluate('document.body.innerText')}"
            time.sleep(0.05)
        return value

    def open(self, url):
        self.errors.clear()
        self.send("Page.navigate", url=url)
        self.wait_for(f"location.href === {json.dumps(url)} && document.readyState === 'complete'")

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, **({"windowsVirtualKeyCode": 9} if key == "Tab" else {}))

    def fill(self, selector, text):
        self.evaluate(f"(() => {{ const field = document.querySelector({json.dumps(selector)}); field.value = {json.dumps(text)};"
                      " field.dispatchEvent(new Event('change', {bubbles: true})); })()")

    def click(self, selector):
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    def text(self, selector):
        return self.evaluate(f"document.querySelector({json.dumps(selector)}).textContent")

    def close(self):
        self._process.kill()
        self._process.wait()
        os.close(self._commands)
