"""Runs the examples of Triton's python_backend, models and clients unchanged, on our Python backend. Run by hand, because the examples are
third-party files:

    git clone https://github.com/triton-inference-server/python_backend
    build/venv/bin/python tests/compat/manual/python_examples.py python_backend/examples --dist dist [--interpreter PYTHON]

The interpreter runs the models. Examples whose packages it lacks (torch, torchvision, Pillow) are reported and skipped. The clients run in the
interpreter of this script, which needs tritonclient.
"""
import argparse
import os
import pathlib
import runpy
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import processes  # noqa: E402

# For each model: its model.py, its configuration (None: the model completes its own), and the packages that it imports.
MODELS = {
    "add_sub": ("add_sub/model.py", "add_sub/config.pbtxt", ()),
    "pytorch": ("pytorch/model.py", "pytorch/config.pbtxt", ("torch",)),
    "bls_sync": ("bls/sync_model.py", "bls/sync_config.pbtxt", ()),
    "bls_async": ("bls/async_model.py", "bls/async_config.pbtxt", ()),
    "bls_decoupled_sync": ("bls_decoupled/sync_model.py", "bls_decoupled/sync_config.pbtxt", ()),
    "bls_decoupled_async": ("bls_decoupled/async_model.py", "bls_decoupled/async_config.pbtxt", ()),
    "repeat_int32": ("decoupled/repeat_model.py", "decoupled/repeat_config.pbtxt", ()),
    "square_int32": ("decoupled/square_model.py", "decoupled/square_config.pbtxt", ()),
    "nobatch_auto_complete": ("auto_complete/nobatch_model.py", None, ()),
    "batch_auto_complete": ("auto_complete/batch_model.py", None, ()),
    "custom_metrics": ("custom_metrics/model.py", "custom_metrics/config.pbtxt", ()),
    "preprocess": ("preprocessing/model.py", "preprocessing/model_repository/preprocess/config.pbtxt", ("torchvision", "PIL")),
}
# For each client: the models that it needs.
CLIENTS = {
    "add_sub/client.py": ("add_sub",),
    "pytorch/client.py": ("pytorch",),
    "bls/sync_client.py": ("bls_sync", "add_sub"),
    "bls/async_client.py": ("bls_async", "add_sub", "pytorch"),
    "bls_decoupled/sync_client.py": ("bls_decoupled_sync", "square_int32"),
    "bls_decoupled/async_client.py": ("bls_decoupled_async", "square_int32"),
    "decoupled/repeat_client.py": ("repeat_int32",),
    "decoupled/square_client.py": ("square_int32",),
    "auto_complete/client.py": ("nobatch_auto_complete", "batch_auto_complete"),
    "custom_metrics/client.py": ("custom_metrics",),
}


def run_client(path, http, grpc, metrics):
    """Runs a client in its own process. The ports in the client's code are redirected to this server's ports."""
    import tritonclient.grpc
    import tritonclient.http
    ports = {"8000": http, "8001": grpc, "8002": metrics}

    def moved(url):
        for port, ours in ports.items():
            url = url.replace(f"localhost:{port}", f"127.0.0.1:{ours}")
        return url

    for module in (tritonclient.http, tritonclient.grpc):
        class Client(module.InferenceServerClient):
            def __init__(self, url, *arguments, **further):
                super().__init__(moved(url), *arguments, **further)
        module.InferenceServerClient = Client
    try:
        import requests
        get = requests.get
        requests.get = lambda url, *arguments, **further: get(moved(url), *arguments, **further)
    except ImportError:
        pass
    sys.argv = [path]
    runpy.run_path(path, run_name="__main__")


def preprocesses(url):
    """Replaces the example's client, which needs an image and a resnet50 model: sends a PNG of one colour and checks the result."""
    import io

    import numpy as np
    import tritonclient.http as httpclient
    from PIL import Image
    file = io.BytesIO()
    Image.new("RGB", (300, 400), (255, 0, 0)).save(file, "PNG")
    data = np.frombuffer(file.getvalue(), np.uint8)[None]
    with httpclient.InferenceServerClient(url) as client:
        tensor = httpclient.InferInput("INPUT_0", data.shape, "UINT8")
        tensor.set_data_from_numpy(data)
        output = client.infer("preprocess", [tensor]).as_numpy("OUTPUT_0")
    return output.shape == (1, 3, 224, 224) and np.allclose(output[0, 0], (1 - 0.485) / 0.229, atol=1e-4)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("examples", type=pathlib.Path)
    parser.add_argument("--dist", type=pathlib.Path, default="dist")
    parser.add_argument("--interpreter", default=sys.executable)
    options = parser.parse_args()
    has = {name: subprocess.run([options.interpreter, "-c", f"import {name}"], capture_output=True, check=False).returncode == 0
           for name in ("torch", "torchvision", "PIL")}
    failed = []
    with tempfile.TemporaryDirectory() as scratch:
        repository, loaded = pathlib.Path(scratch) / "models", set()
        for name, (code, config, needs) in MODELS.items():
            missing = [each for each in needs if not has[each]]
            if missing:
                print(f"left out: {name} (no {', '.join(missing)})")
                continue
            (repository / name / "1").mkdir(parents=True)
            shutil.copy(options.examples / code, repository / name / "1/model.py")
            if config is not None:
                shutil.copy(options.examples / config, repository / name / "config.pbtxt")
            loaded.add(name)
        server = processes.Server(options.dist / "bin/nereid", repository, options.dist / "backends", pathlib.Path(scratch) / "log",
                                  dict(os.environ), [f"--backend-config=python,interpreter={options.interpreter}"])
        try:
            for client, needs in CLIENTS.items():
                if not set(needs) <= loaded:
                    print(f"left out: {client}")
                    continue
                done = subprocess.run([sys.executable, __file__, "--client", str(options.examples / client), str(server.http), str(server.grpc),
                                       str(server.metrics)], capture_output=True, text=True, timeout=300, check=False)
                print("passed" if done.returncode == 0 else "FAILED", client, flush=True)
                if done.returncode != 0:
                    failed.append(client)
                    print(done.stdout[-1500:], done.stderr[-1500:])
            if "preprocess" in loaded:
                works = preprocesses(f"127.0.0.1:{server.http}")
                print("passed" if works else "FAILED", "preprocessing/model.py")
                failed += [] if works else ["preprocessing"]
        finally:
            server.stop()
            if failed:
                print(server.text()[-3000:])
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--client":
        run_client(sys.argv[2], *sys.argv[3:6])
    else:
        sys.exit(main())
