"""Logits that are returned and biases that change them, in every mode: streams, beams, several sequences, prompts in chunks, cached prefixes, draft
tokens, and all of them at once."""
import pathlib
import queue

import numpy as np
import pytest
import tritonclient.grpc as grpcclient

DEMO = pathlib.Path(__file__).resolve().parents[2] / "demo" / "model"
VOCAB, TOKENS = 4096, 10
PROMPT = [12, 45, 78, 101, 7, 33, 250, 18, 90, 61, 5, 14, 77, 39, 120, 8, 44, 99, 10, 3, 71, 55, 23, 42, 17, 66, 81, 29, 6, 200, 31, 9, 111, 48]
CONFIG = f"""backend: "cpu_reference"
max_batch_size: 0
model_transaction_policy {{ decoupled: true }}
parameters {{ key: "gpt_model_path" value {{ string_value: "{DEMO}" }} }}
parameters {{ key: "max_seq_len" value {{ string_value: "128" }} }}
parameters {{ key: "exclude_input_in_output" value {{ string_value: "true" }} }}
parameters {{ key: "max_beam_width" value {{ string_value: "4" }} }}
parameters {{ key: "max_num_sequences" value {{ string_value: "8" }} }}
"""
SPECIAL = "".join(f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n' for key, value in {
    "max_num_tokens": 12, "enable_chunked_context": "true", "enable_kv_cache_reuse": "true", "speculative_decoding": "ngram"}.items())
TYPES = {"int32": "INT32", "uint64": "UINT64", "float32": "FP32", "bool": "BOOL", "object": "BYTES"}


@pytest.fixture(scope="module")
def llm(start_server, tmp_path_factory):
    root = tmp_path_factory.mktemp("repository")
    for name, more in (("plain", ""), ("special", SPECIAL)):
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(CONFIG + more)
    return start_server(root)


def infer(server, model, fields):
    """All responses of a request."""
    inputs = []
    for name, value in fields.items():
        value = np.asarray(value)
        inputs.append(grpcclient.InferInput(name, value.shape, TYPES[str(value.dtype)]).set_data_from_numpy(value))
    answers = queue.Queue()
    with grpcclient.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        client.async_stream_infer(model, inputs, enable_empty_final_response=True)
        responses = []
        while True:
            result, error = answers.get(timeout=60)
            assert error is None, error
            if result.as_numpy("output_ids") is not None or result.as_numpy("text_output") is not None:
                responses.append(result)
            if result.get_response().parameters["triton_final_response"].bool_param:
                return responses


def ask(server, model="plain", prompt=PROMPT, **fields):
    """By sequence: its ids and generation logits. And the context logits."""
    given = {"input_ids": np.array(prompt, np.int32), "input_lengths": np.array([len(prompt)], np.int32),
             "request_output_len": np.array([TOKENS], np.int32), "end_id": np.array([-1], np.int32),
             "return_context_logits": np.array([True]), "return_generation_logits": np.array([True]), **fields}
    ids, rows, context = {}, {}, []
    for response in infer(server, model, given):
        if response.as_numpy("context_logits") is not None:
            context.append(response.as_numpy("context_logits"))
        single = response.as_numpy("sequence_index")
        for i, sequence in enumerate(response.as_numpy("output_ids")):
            key = i if single is None else single.item()
            length = response.as_numpy("sequence_length").ravel()[i]
            ids.setdefault(key, []).extend(sequence[:length].tolist())
            if response.as_numpy("generation_logits") is not None:
                rows.setdefault(key, []).append(response.as_numpy("generation_logits")[i][:length])
    assert len(context) == 1  # once, with the first response
    return ids, {key: np.concatenate(each) for key, each in rows.items()}, context[0]


MODES = {"whole": {}, "stream": {"streaming": np.array([True])}, "several": {"num_return_sequences": np.array([3], np.int32)},
         "several streams": {"num_return_sequences": np.array([3], np.int32), "streaming": np.array([True]), "runtime_top_k": np.array([20], np.int32),
                             "seed": np.array([4], np.uint64)},
         "beams": {"beam_width": np.array([3], np.int32)}, "drawn": {"runtime_top_k": np.array([5], np.int32)}}


@pytest.mark.parametrize("mode", MODES)
def test_logits_are_those_before_each_token_in_every_mode(llm, mode):
    ids, rows, context = ask(llm, **MODES[mode])
    assert context.shape == (len(PROMPT), VOCAB)
    for key, sequence in ids.items():
        assert len(sequence) == TOKENS and rows[key].shape == (TOKENS, VOCAB)
        assert np.array_equal(rows[key][0], context[-1])
        # The model's own logits behind the prompt and each token of this output.
        _, _, known = ask(llm, prompt=PROMPT + sequence)
        assert np.array_equal(rows[key], known[len(PROMPT) - 1:-1])
    # In chunks, with draft tokens, and at the second time with a cached prefix, which context logits do not use.
    for _ in range(2):
        other_ids, other_rows, other_context = ask(llm, "special", **MODES[mode])
        assert other_ids == ids and np.array_equal(other_context, context)
        assert all(np.array_equal(other_rows[key], rows[key]) for key in rows)
    alone, alone_rows, _ = ask_without_context(llm, **MODES[mode])
    assert alone == ids and all(np.array_equal(alone_rows[key], rows[key]) for key in rows)


def ask_without_context(llm, **fields):
    """From a cached prefix."""
    given = {"input_ids": np.array(PROMPT, np.int32), "input_lengths": np.array([len(PROMPT)], np.int32), "request_output_len": np.array([TOKENS], np.int32),
             "end_id": np.array([-1], np.int32), "return_generation_logits": np.array([True]), **fields}
    ids, rows = {}, {}
    responses = infer(llm, "special", given)
    assert responses[-1].as_numpy("num_cached_tokens").item() == 32
    for response in responses:
        single = response.as_numpy("sequence_index")
        for i, sequence in enumerate(response.as_numpy("output_ids")):
            key = i if single is None else single.item()
            length = response.as_numpy("sequence_length").ravel()[i]
            ids.setdefault(key, []).extend(sequence[:length].tolist())
            rows.setdefault(key, []).append(response.as_numpy("generation_logits")[i][:length])
    return ids, {key: np.concatenate(each) for key, each in rows.items()}, None


@pytest.mark.parametrize("mode", MODES)
def test_a_bias_by_ids_decides_in_every_mode(llm, mode):
    whole = np.zeros(VOCAB, np.float32)
    whole[[5, 9]] = 1000.0
    for model in ("plain", "special"):
        for bias in ({"embedding_bias": whole}, {"logit_bias_ids": np.array([9, 5], np.int32), "logit_bias_values": np.array([1000.0, 1000.0], np.float32)}):
            ids, rows, _ = ask(llm, model, **bias, **MODES[mode])
            assert all(len(sequence) == TOKENS and set(sequence) <= {5, 9} for sequence in ids.values())
            assert all(np.abs(each).max() < 500 for each in rows.values())  # before the bias


@pytest.mark.parametrize("more", [{}, {"stream": np.array([[True]])}, {"top_k": np.array([[20]], np.int32)}, {"num_return_sequences": np.array([[2]], np.int32)}])
def test_a_bias_by_words_decides_through_an_ensemble(demo, more):
    fields = {"text_input": np.array([[b"Once upon a time"]], object), "max_tokens": np.array([[6]], np.int32),
              "embedding_bias_words": np.array([["z".encode()]], object), "embedding_bias_weights": np.array([[1000.0]], np.float32)}
    texts = {}
    for response in infer(demo, "ensemble", {**fields, **more}):
        index = response.as_numpy("sequence_index")
        key = 0 if index is None else index.item()
        texts[key] = texts.get(key, "") + response.as_numpy("text_output").ravel()[0].decode()
    assert len(texts) == int(more.get("num_return_sequences", [[1]])[0][0])
    assert all(text.strip() and set(text) <= {"z", " "} for text in texts.values()), texts
