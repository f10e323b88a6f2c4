"""Prints as CSV the files that a reader opens on four walks through the code, with their lines at two revisions.

python3 tools/lint/walks.py BEFORE NOW >bench/results/walks.csv
"""
import csv
import sys

from sources import text_of

HTTP = ["http/transport/http_connection_input.cc", "http/kserve_service.cc", "http/endpoints/infer_endpoint.cc", "http/bodies/infer_body.cc",
        "http/calls/model_call.cc"]
GRPC = ["grpc/transport/http2_connection.cc", "grpc/transport/session_callbacks.cc", "grpc/transport/http2_stream.cc", "grpc/transport/message_reader.cc",
        "grpc/inference_service.cc", "grpc/stream_infer.cc", "grpc/stream_request.cc", "grpc/infer_request_builder.cc", "grpc/infer_message.cc",
        "grpc/infer_response_encoder.cc", "grpc/transport/http2_stream_output.cc"]
CORE = ["capi/inference_request.cc", "request/infer_request.cc", "scheduling/fifo_scheduler.cc", "model/instance_thread.cc", "backend/instance.cc"]
TOKEN = ["llm_core/adapter/llm_model.cc", "llm_core/adapter/request_reader.cc", "llm_core/engine/engine.cc", "llm_core/engine/scheduler.cc",
         "llm_core/engine/kv_cache_manager.cc", "cpu_reference/cpu_executor.cc", "cpu_reference/model/decoder.cc", "llm_core/sampling/sampler.cc",
         "llm_core/adapter/stop_string_detector.cc", "llm_core/adapter/active_request.cc"]
PYTHON = ["instance.cc", "session.cc", "request_codec.cc", "tensor_codec.cc", "channel.cc", "worker/nereid_worker/runtime.py"]


def below(folder, names):
    return [f"{folder}/{name}" for name in names]


HTTP_INFER = below("host/frontend", HTTP) + below("host/core", CORE)
WALKS = {
    "HTTP infer": HTTP_INFER,
    "gRPC stream": below("host/frontend", GRPC) + below("host/core", CORE),
    "a token": below("backends", TOKEN),
    "Python call": HTTP_INFER + below("backends/python_like_scripted", PYTHON),
}


def main():
    before, now = sys.argv[1:]
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["walk", "file", f"lines at {before}", f"lines at {now}"])
    for walk, files in WALKS.items():
        lines = [[text_of(name, revision).count("\n") for revision in (before, now)] for name in files]
        writer.writerow([walk, f"all {len(files)}", *map(sum, zip(*lines))])
        writer.writerows([walk, name, *counts] for name, counts in zip(files, lines))


if __name__ == "__main__":
    main()
