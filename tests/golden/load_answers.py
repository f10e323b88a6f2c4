"""The cases of load_answers.toml: model configurations, and Triton's answer to loading each."""
import pathlib
import tomllib

ANSWERS = tomllib.loads((pathlib.Path(__file__).parent / "load_answers.toml").read_text())
CASES = ANSWERS["load"]
# The step models of the ensembles among the cases.
STEPS = {"base": "", "base4": "max_batch_size: 4 ", "basedec": "model_transaction_policy { decoupled: true } "}


def write(folder, case):
    """Writes the model's folder. A path that ends with a slash is a folder."""
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
    """Nereid's HTTP status. A rejected load is a client error, unless the key `nereid` says otherwise."""
    loads = (case["triton"] == 200) != ("differs" in case)
    return 200 if loads else case.get("nereid", 400)
