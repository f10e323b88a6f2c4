"""Normalizes answers so that only relevant differences remain: outputs by name, counters masked, folders replaced."""
import json
import re


COUNTERS = {"count", "ns", "last_inference", "inference_count", "execution_count"}


class Paths:
    """Replaces the model folder by $ROOT/repo, as in the recordings, and renamed objects by their recorded names."""

    def __init__(self, folders):
        self.folders = folders  # name in the recordings -> folder of this run
        self.renamed = {}  # text of this run -> text in the recordings

    def clean(self, text):
        for ours, recorded in self.renamed.items():
            text = text.replace(ours, recorded)
        for name, folder in self.folders.items():
            text = text.replace(str(folder), f"$ROOT/{name}")
        return text


def http_body(answer, paths):
    """The body as comparable values."""
    content_type = answer.headers.get("content-type", "")
    if content_type.startswith("text/event-stream"):
        events = answer.body.decode().split("\n\n")
        return [json_value(event.removeprefix("data: "), paths) for event in events if event.strip()]
    header_size = answer.headers.get("inference-header-content-length")
    if header_size is not None:
        header = answer.body[:int(header_size)].decode()
        return inference(json.loads(header), answer.body[int(header_size):]) if header else answer.body
    if content_type.startswith("text/plain; charset"):
        return metrics(answer.body.decode())
    text = answer.body.decode("utf-8", errors="backslashreplace")
    return json_value(text, paths) if text[:1] in ("{", "[") else text


def json_value(text, paths):
    try:
        value = json.loads(paths.clean(text))
    except ValueError:
        return text
    if isinstance(value, dict) and "outputs" in value and "model_name" in value:
        return inference(value, b"")
    if isinstance(value, dict) and "model_stats" in value:
        return {model["name"] + "/" + model["version"]: statistics(model) for model in value["model_stats"]}
    if isinstance(value, list) and all(isinstance(model, dict) and "name" in model for model in value):
        return sorted((settled(model) for model in value), key=lambda model: (model["name"], model.get("version", "")))
    return value


def settled(model):
    """An unload continues after its answer, so that a model that is unloading counts as unloaded."""
    return {**model, "state": "UNAVAILABLE", "reason": "unloaded"} if model.get("state") == "UNLOADING" else model


def inference(value, binary):
    """Outputs as a dictionary instead of a list, because their order is not specified."""
    outputs = {}
    for output in value["outputs"]:
        size = output.get("parameters", {}).get("binary_data_size")
        if size is not None:
            output["data"], binary = binary[:size], binary[size:]
        elif "data" in output:
            output["data"] = [described_request(element) for element in output["data"]]
        outputs[output["name"]] = output
    assert not binary, f"{len(binary)} bytes beyond the outputs"
    return {**value, "outputs": outputs}


def described_request(element):
    """The model `params` writes JSON into a string; the order of its parameters is not specified."""
    if isinstance(element, str) and element.startswith('{"parameters"'):
        return json.loads(element)
    return element


def statistics(model):
    """Which counters exist, without their values, because those depend on earlier requests."""
    def mask(value):
        if isinstance(value, dict):
            return {key: "*" if key in COUNTERS and not isinstance(item, dict) else mask(item) for key, item in value.items()}
        return value

    return {key: "*" if key in ("response_stats", "batch_stats", "memory_usage") else mask(value)
            for key, value in model.items() if key not in COUNTERS} | {key: "*" for key in model if key in COUNTERS}


def metrics(text):
    """Names, kinds and labels of metrics. Values are only checked to be numbers. Metrics of the machine are left out."""
    lines = set()
    for line in text.splitlines():
        if "gpu" in line or "energy" in line or line.startswith("# HELP") or not line.strip():
            continue
        lines.add(line if line.startswith("#") else re.sub(r"[-+.\deE]+(nan|inf)?$", "*", line))
    return sorted(lines)
