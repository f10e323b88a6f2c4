"""Generates tables of docs/compatibility.md: the flags, those that differ first, from the server's help text, the differences from differences.toml. `python
tests/golden/compatibility_page.py` writes them (NEREID_DIST names the installed tree).
"""
import os
import pathlib
import re
import subprocess

import differences

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/compatibility.md"


# The flags of Triton 2.51 and of later versions.
TRITON_FLAGS = """
    --help --model-repository --model-store --model-control-mode --repository-poll-secs --load-model --exit-on-error --exit-timeout-secs
    --strict-readiness --disable-auto-complete-config --strict-model-config --model-config-name --model-load-thread-count
    --model-load-retry-count --model-namespacing --backend-directory --backend-config --repoagent-directory --cache-directory --cache-config
    --response-cache-byte-size --rate-limit --rate-limit-resource --pinned-memory-pool-byte-size --cuda-memory-pool-byte-size
    --cuda-virtual-address-size --enable-peer-access --buffer-manager-thread-count --min-supported-compute-capability --model-load-gpu-limit
    --host-policy --id --allow-http --http-address --http-port --reuse-http-port --http-thread-count --http-max-input-size
    --http-header-forward-pattern --http-restricted-api --allow-grpc --grpc-address --grpc-port --reuse-grpc-port --grpc-infer-thread-count
    --grpc-infer-allocation-pool-size --grpc-max-response-pool-size --grpc-header-forward-pattern --grpc-restricted-protocol --grpc-use-ssl
    --grpc-use-ssl-mutual --grpc-server-cert --grpc-server-key --grpc-root-cert --grpc-keepalive-time --grpc-keepalive-timeout
    --grpc-keepalive-permit-without-calls --grpc-http2-max-pings-without-data --grpc-http2-min-recv-ping-interval-without-data
    --grpc-http2-max-ping-strikes --grpc-max-connection-age --grpc-max-connection-age-grace --grpc-infer-response-compression-level
    --allow-metrics --allow-gpu-metrics --allow-cpu-metrics --metrics-address --metrics-port --metrics-interval-ms --metrics-config
    --trace-config --trace-file --trace-level --trace-rate --trace-count --trace-log-frequency --log-verbose --log-info --log-warning
    --log-error --log-format --log-file --allow-client-shm --allow-sagemaker --sagemaker-port --sagemaker-safe-port-range
    --sagemaker-thread-count --allow-vertex-ai --vertex-ai-port --vertex-ai-thread-count --vertex-ai-default-model""".split()


# Flags that differ from Triton, and the reason.
FLAGS_THAT_DIFFER = {
    "--buffer-manager-thread-count": "tensors are not copied by separate threads",
    "--cuda-memory-pool-byte-size": "a pool is created when it is first needed",
    "--metrics-interval-ms": "in Triton a thread reads them",
    "--grpc-infer-thread-count": "in Triton separate threads begin each call",
    "--grpc-infer-allocation-pool-size": "nothing is kept for later calls",
    "--grpc-max-response-pool-size": "nothing is kept for later calls",
    "--cache-config": "a server has one cache",
}


def help_text():
    return subprocess.run([os.environ["NEREID_DIST"] + "/bin/nereid", "--help"], capture_output=True, text=True, check=True).stdout


def flags():
    """(name, value, description) of each flag."""
    found = []
    for line in help_text().splitlines()[3:]:
        if re.match(r"  --", line):
            name, _, value = line.strip().partition(" ")
            found.append([name, value.strip("<>"), ""])
        elif line.startswith("     "):
            found[-1][2] = (found[-1][2] + " " + line.strip()).strip()
    return found


def cell(text):
    return text.replace("|", "\\|")


def verdict(name):
    if name in FLAGS_THAT_DIFFER:
        return "differs"
    return "works" if name in TRITON_FLAGS else "ours"


def flag_table(differs=False):
    """The flags that differ from Triton's, or all others."""
    rows = ["| flag | value | verdict | what it does |", "|---|---|---|---|"]
    for name, value, text in flags():
        why = FLAGS_THAT_DIFFER.get(name)
        if bool(why) == differs:
            rows.append(f"| `{name}` | {cell(value)} | {verdict(name)} | {cell(text + (f' Differs: {why}.' if why else ''))} |")
    return rows


def instead(entry):
    """Nereid's answer in a few words."""
    parts = [str(entry[key]) for key in ("status", "grpc_status") if key in entry]
    if "error" in entry:
        parts.append("the error says what is wrong" if parts else "a different error text")
    return ", ".join(parts) or "different content"


def difference_table():
    rows = ["| recorded request | Nereid answers | why |", "|---|---|---|"]
    for entry in differences.DIFFERENCES:
        names = ", ".join(f"`{name}`" for name in entry["recordings"])
        rows.append(f"| {names} | {cell(instead(entry))} | {cell(entry['reason'])} |")
    return rows


TABLES = {"flags-that-differ": lambda: flag_table(differs=True), "flags": flag_table, "differences": difference_table}


def marked(name):
    return f"<!-- {name}: made by tests/golden/compatibility_page.py -->"


def table_on_page(name):
    """The lines between the markers of the table."""
    text = PAGE.read_text()
    return text.split(marked(name) + "\n\n", 1)[1].split("\n\n<!-- end -->", 1)[0].splitlines()


def write():
    text = PAGE.read_text()
    for name, make in TABLES.items():
        head, rest = text.split(marked(name) + "\n", 1)
        text = head + marked(name) + "\n\n" + "\n".join(make()) + "\n\n<!-- end -->" + rest.split("<!-- end -->", 1)[1]
    PAGE.write_text(text)


if __name__ == "__main__":
    write()
