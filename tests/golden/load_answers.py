"""load_answers.toml: configurations, and Triton's verdict of each load."""
import pathlib
import tomllib

ANSWERS = tomllib.loads((pathlib.Path(__file__).parent / "load_answers.toml").read_text())
CASES = ANSWERS["load"]
# What the ensembles among them call.
STEPS = {"base": "", "base4": "max_batch_size: 4 ", "basedec": "model_transaction_policy { decoupled: true } "}


def write(folder, case):
    """Makes the model's folder. A path that ends with a slash is a folder."""
    files = dict(case.get("files", {"1/": ""}))
    if "config" in case:
        files["config.pbtxt"] = case["config"].replace("$IO", ANSWERS["io"])
    for path, content in files.items():
        target = folder / path
        if path.endswith("/"):
            target.mkdir(parents=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode("latin1"))


def write_steps(repository):
    for name, fields in STEPS.items():
        write(repository / name, {"config": f"backend: 'identity_c' {fields}$IO"})


def expected_status(case):
    """Ours: what is refused is the request's fault, unless `nereid` says otherwise, and does no harm."""
    loads = (case["triton"] == 200) != ("differs" in case)
    return 200 if loads else case.get("nereid", 400)
