"""Repeats the recorded gRPC calls and compares their answers as messages."""
import dataclasses
import re

import grpc
from google.protobuf import json_format, text_format
from tritonclient.grpc import service_pb2

import compare as comparison
import normal_form

SERVICE = "inference.GRPCInferenceService"


@dataclasses.dataclass
class GrpcAnswer:
    status: str
    details: str
    messages: list  # messages; bytes if the call is given as bytes


def message_type(method, side):
    if method == "ModelStreamInfer":
        return service_pb2.ModelInferRequest if side == "Request" else service_pb2.ModelStreamInferResponse
    return getattr(service_pb2, method + side)


def parsed(method, side, texts):
    return [text_format.Parse(text, message_type(method, side)()) for text in texts]


def call(port, exchange):
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            if exchange.method.startswith("/"):
                return GrpcAnswer("OK", "", [channel.unary_unary(exchange.method)(exchange.requests[0], timeout=exchange.timeout)])
            requests = parsed(exchange.method, "Request", exchange.requests)
            if exchange.method == "ModelStreamInfer":
                return stream(channel, exchange, requests)
            unary = channel.unary_unary(f"/{SERVICE}/{exchange.method}",
                                        request_serializer=lambda message: message.SerializeToString(),
                                        response_deserializer=message_type(exchange.method, "Response").FromString)
            return GrpcAnswer("OK", "", [unary(requests[0], timeout=exchange.timeout, metadata=exchange.metadata)])
        except grpc.RpcError as error:
            return GrpcAnswer(error.code().name, error.details(), [])


def stream(channel, exchange, requests):
    method = channel.stream_stream(f"/{SERVICE}/ModelStreamInfer", request_serializer=lambda message: message.SerializeToString(),
                                   response_deserializer=service_pb2.ModelStreamInferResponse.FromString)
    messages = []
    responses = method(iter(requests), metadata=exchange.metadata, timeout=30)
    try:
        for message in responses:
            messages.append(message)
        return GrpcAnswer("OK", "", messages)
    except grpc.RpcError as error:
        return GrpcAnswer(error.code().name, error.details(), messages)


def value_of(message, paths):
    """A message as comparable values."""
    if isinstance(message, bytes):
        return message
    if isinstance(message, service_pb2.ModelStreamInferResponse):
        return {"error": message.error_message and paths.clean(message.error_message), "response": value_of(message.infer_response, paths)}
    value = json_format.MessageToDict(message, preserving_proto_field_name=True)
    if isinstance(message, service_pb2.ModelInferResponse):
        raw = list(message.raw_output_contents)
        value.pop("raw_output_contents", None)
        value["outputs"] = {output.name: {**json_format.MessageToDict(output), "raw": described(raw[i]) if i < len(raw) else None}
                            for i, output in enumerate(message.outputs)}
    if isinstance(message, service_pb2.ModelStatisticsResponse):
        return {model.name + "/" + model.version: sorted(json_format.MessageToDict(model.inference_stats))
                for model in message.model_stats}
    if isinstance(message, service_pb2.TraceSettingResponse):
        return {key: [paths.clean(text) for text in setting.value] for key, setting in message.settings.items()}
    if isinstance(message, service_pb2.RepositoryIndexResponse):
        models = [json_format.MessageToDict(model) for model in message.models]
        return sorted(({key: paths.clean(text) for key, text in normal_form.settled(model).items()} for model in models),
                      key=lambda model: (model["name"], model.get("version", "")))
    return value


def described(raw):
    """The text of the model `params` as values. It lists its parameters in any order."""
    return normal_form.described_request(raw[4:].decode()) if raw[4:].startswith(b'{"parameters"') else raw


def by_request(values):
    """Responses of different requests of a stream may overtake each other; those of one request may not."""
    groups = {}
    for value in values:
        groups.setdefault(value.get("response", {}).get("id") if isinstance(value, dict) else None, []).append(value)
    return groups


def compare(exchange, answer, paths, instead):
    """Asserts that `answer` is the recorded one, except for the differences in `instead` (an entry of differences.toml)."""
    assert answer.status == instead.get("grpc_status", exchange.status), answer
    details = paths.clean(answer.details or "")
    if "error" in instead:
        texts = [details] + [value_of(message, paths)["error"] for message in answer.messages if hasattr(message, "error_message")]
        assert any(text and re.fullmatch(instead["error"], text, re.DOTALL) for text in texts), f"{texts} have no {instead['error']!r}"
        return
    assert details == ("" if answer.status == "OK" else exchange.details)
    if exchange.method.startswith("/"):
        recorded = exchange.messages
    else:
        recorded = parsed(exchange.method, "Response", exchange.messages)
    values, before = [[value_of(message, paths) for message in messages] for messages in (answer.messages, recorded)]
    if exchange.method == "ModelStreamInfer":
        values, before = by_request(values), by_request(before)
    if exchange.method == "RepositoryIndex":
        values, before = values[0], before[0]
    comparison.compare_values(values, before, {key: instead[key] for key in ("ignore", "json", "models") if key in instead})
