"""gRPC streams of one request, for all end-to-end tests."""
import queue

import tritonclient.grpc as grpcclient
from waiting import PATIENCE_S


def stream_of(server, model, inputs, **further):
    """Returns the responses of a stream that have outputs, until its end."""
    arrived, seen = queue.Queue(), []
    with grpcclient.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
        client.start_stream(lambda result, error: arrived.put((result, error)))
        client.async_stream_infer(model, inputs, enable_empty_final_response=True, **further)
        while True:
            result, error = arrived.get(timeout=PATIENCE_S)
            assert error is None, error
            response = result.get_response()
            if response.outputs:
                seen.append(result)
            if response.parameters["triton_final_response"].bool_param:
                client.stop_stream()
                return seen


def streamed_text(server, model, inputs):
    """Returns the concatenated `text_output` of a stream."""
    pieces = [result.as_numpy("text_output") for result in stream_of(server, model, inputs)]
    return "".join(piece.flatten()[0].decode() for piece in pieces if piece is not None and piece.size)
