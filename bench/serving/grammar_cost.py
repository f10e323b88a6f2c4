#!/usr/bin/env python3
"""Measures what structured output costs the engine: tokens a second of completions with a guide and without one, and the server's processor time a token.

    grammar_cost.py --dist dist --config FOLDER [--batches 1,64,256] >bench/results/grammar_gpu.csv

FOLDER has a config.json and a tokenizer. Without weights beside them, the GPU engine makes some up, so that any shape can be measured. As many clients as the batch has sequences send one
request each; a cell is the median of three rounds, in which the cases alternate. The clients run in one Python process on the same machine, which is
part of the rates. The processor time is that of all threads of the server; where a processor runs the model and others use the machine too, it is what to
compare. Prints CSV. Never asserts.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time
import urllib.request

PERSON = {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string", "maxLength": 20}, "ok": {"type": "boolean"}},
          "required": ["id", "name", "ok"], "additionalProperties": False}
PEOPLE = {"type": "object", "properties": {"items": {"type": "array", "minItems": 200, "items": PERSON}}, "required": ["items"], "additionalProperties": False}
GUIDES = {"free": None, "json": {"json": PEOPLE}, "regex": {"regex": "([a-z]+ ){200,}"}}


def write_repository(dist, config, models):
    subprocess.run([dist / "bin/nereid-repo", "new", "llm", "--checkpoint", dist / "share/demo_model", "--out", models, "--decoupled"], check=True,
                   stdout=subprocess.DEVNULL)
    for name in ("preprocessing", "postprocessing", "tensorrt_llm"):
        path = models / name / "config.pbtxt"
        text = path.read_text().replace(str(dist / "share/demo_model"), str(config))
        if name == "tensorrt_llm":
            # The longest white space is 0, so that random weights reach the values of the schema.
            parameters = {"json_whitespace": "0"} | ({} if list(config.glob("*.safetensors")) else {"load_format": "dummy"})
            for key, value in parameters.items():
                text += f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'
        path.write_text(text)


def complete(port, seed, guide, num_tokens):
    """Returns the number of tokens of one completion."""
    body = {"model": "ensemble", "prompt": "A list of people as JSON:", "max_tokens": num_tokens, "temperature": 1, "seed": seed}
    body |= {"ignore_eos": True} if guide is None else {"structured_outputs": guide}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)["usage"]["completion_tokens"]


def processor_seconds(process):
    user, system = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def measure(server, port, batch, guide, num_tokens):
    """Returns tokens a second, and milliseconds of processor time a token."""
    started, used = time.perf_counter(), processor_seconds(server)
    with concurrent.futures.ThreadPoolExecutor(batch) as clients:
        total = sum(clients.map(lambda seed: complete(port, seed, guide, num_tokens), range(batch)))
    return total / (time.perf_counter() - started), (processor_seconds(server) - used) * 1000 / total


def wait_until_ready(server, port):
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/ready", timeout=5).close()
            return
        except OSError:
            if server.poll() is not None:
                raise SystemExit("the server ended") from None
            time.sleep(0.2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dist", required=True, type=pathlib.Path)
    parser.add_argument("--config", required=True, type=pathlib.Path)
    parser.add_argument("--batches", default="1,64,256")
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--port", type=int, default=18080)
    arguments = parser.parse_args()
    dist = arguments.dist.resolve()
    with tempfile.TemporaryDirectory() as temporary:
        models = pathlib.Path(temporary) / "models"
        write_repository(dist, arguments.config.resolve(), models)
        command = [dist / "bin/nereid", f"--model-repository={models}", f"--http-port={arguments.port}", "--allow-grpc=false", "--allow-metrics=false"]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_until_ready(server, arguments.port)
            print("batch,guide,tokens/s,ratio to free,processor ms/token,ratio to free")
            for batch in (int(each) for each in arguments.batches.split(",")):
                cells = {name: [] for name in GUIDES}
                for round_index in range(arguments.rounds + 1):  # the first one warms up
                    for name, guide in GUIDES.items():
                        cell = measure(server, arguments.port, batch, guide, arguments.tokens)
                        if round_index > 0:
                            cells[name].append(cell)
                medians = {name: [statistics.median(column) for column in zip(*values)] for name, values in cells.items()}
                for name, (rate, busy) in medians.items():
                    free_rate, free_busy = medians["free"]
                    print(f"{batch},{name},{rate:.1f},{rate / free_rate:.3f},{busy:.2f},{busy / free_busy:.3f}", flush=True)
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
