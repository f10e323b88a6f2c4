"""Summary of a run's records, and a description of the machine."""
import collections
import datetime
import pathlib
import subprocess
import threading


def percentiles(values, scale=1e3):
    values = sorted(values)
    if not values:
        return {}
    return {f"p{p}": round(values[min(len(values) - 1, len(values) * p // 100)] * scale, 3) for p in (50, 90, 99)}


def summary(args, records):
    succeeded = [r for r in records if r["error"] is None and r["times"]]
    first = [r["times"][0] - r["sent"] for r in succeeded]
    between = [b - a for r in succeeded for a, b in zip(r["times"], r["times"][1:])]
    began, ended = min(r["sent"] for r in records), max(r["ended"] for r in records)
    span = max(ended - began, 1e-9)
    mean_gap = [(r["times"][-1] - r["times"][0]) / max(1, len(r["times"]) - 1) for r in succeeded]
    met = sum(f * 1e3 <= args.slo_ttft and g * 1e3 <= args.slo_itl for f, g in zip(first, mean_gap))
    tokens = sum(len(r["times"]) for r in succeeded)
    return {
        "requests": len(records), "failed": len(records) - len(succeeded), "seconds": round(span, 3),
        "ttft_ms": percentiles(first), "between_tokens_ms": percentiles(between), "mean_between_tokens_ms": percentiles(mean_gap),
        "request_ms": percentiles([r["ended"] - r["sent"] for r in succeeded]),
        "input_tokens": sum(r["prompt"] for r in succeeded), "output_tokens": tokens, "output_tokens_per_s": round(tokens / span, 1),
        "output_tokens_of_a_second": percentiles(by_second(succeeded, began), 1),
        "requests_per_s": round(len(succeeded) / span, 3),
        "goodput_requests_per_s": round(met / span, 3), "goodput_share": round(met / len(records), 4),
        "goodput_is": f"first token within {args.slo_ttft} ms, mean time between tokens within {args.slo_itl} ms",
    }


def by_second(records, began):
    """Number of tokens received in each full second of the run."""
    counts = collections.Counter(int(at - began) for r in records for at in r["times"])
    return [counts[second] for second in range(max(counts, default=0))] or list(counts.values())


def command_output(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


class Machine:
    """Commit, GPU and driver, and the GPU's clocks during the run, which a thread samples once a second."""

    def __init__(self):
        here = pathlib.Path(__file__).parent
        self.facts = {"commit": command_output(["git", "-C", str(here), "rev-parse", "--short", "HEAD"]),
                      "gpu": command_output(["nvidia-smi", "--query-gpu=name,driver_version,clocks.max.sm,clocks.max.mem", "--format=csv,noheader"]),
                      "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")}
        self.clocks, self.stopped = [], threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        if self.facts["gpu"]:
            self.thread.start()

    def watch(self):
        while not self.stopped.wait(1.0):
            self.clocks.append(command_output(["nvidia-smi", "--query-gpu=clocks.sm,clocks.mem,power.draw", "--format=csv,noheader"]))

    def finish(self):
        self.stopped.set()
        if self.thread.is_alive():
            self.thread.join()
        return self.facts | {"clocks": self.clocks}
