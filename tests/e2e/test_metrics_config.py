"""`--metrics-config`: distributions of latencies on the metrics page."""
import queue
import re
import subprocess
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc as grpc_client

CONFIG = """backend: "patient"
model_transaction_policy { decoupled: true }
input [ { name: "COUNT" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "TICK" data_type: TYPE_INT32 dims: [ 1 ] }, { name: "DATA" data_type: TYPE_UINT8 dims: [ -1 ] } ]
model_metrics { metric_control [ { metric_identifier { family: "nv_inference_first_response_histogram_ms" } histogram_options { buckets: [ 1, 60000 ] } } ] }
"""


def test_histograms_and_summaries_are_shown_if_enabled(start_server, test_backends, tmp_path):
    (tmp_path / "m/1").mkdir(parents=True)
    (tmp_path / "m/config.pbtxt").write_text(CONFIG)
    server = start_server(tmp_path, [test_backends, "--metrics-config=histogram_latencies=true",
                                     "--metrics-config=summary_latencies=true", "--metrics-config=summary_quantiles=0.5:0.05,0.9:0.01"])
    answers = queue.Queue()
    with grpc_client.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        count = grpc_client.InferInput("COUNT", [1], "INT32")
        count.set_data_from_numpy(np.array([3], np.int32))
        client.async_stream_infer("m", [count])
        for _ in range(3):
            assert answers.get(timeout=60)[1] is None
        client.stop_stream()
    with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics}/metrics", timeout=60) as answer:
        page = answer.read().decode()
    assert 'nv_inference_first_response_histogram_ms_count{model="m",version="1"} 1' in page
    assert 'nv_inference_first_response_histogram_ms_bucket{model="m",version="1",le="60000"} 1' in page
    assert set(re.findall(r'nv_inference_request_summary_us{model="m",version="1",quantile="(.*?)"}', page)) == {"0.5", "0.9"}


@pytest.mark.parametrize("setting", ["summary_quantiles=2:0.1", "histogram_latencies=maybe", "colour=red"])
def test_a_setting_that_makes_no_sense_is_refused_by_name(dist, tmp_path, setting):
    done = subprocess.run([str(dist / "bin/nereid"), f"--model-repository={tmp_path}", f"--metrics-config={setting}"], capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 1 and setting.split("=")[0] in done.stderr, done.stderr[-1000:]
