"""Prompts that are not only tokens: rows of a prompt table, and embeddings before the tokens. Rows that equal the model's own embeddings of the
golden prompts have the golden answers, which Hugging Face transformers gave."""
import base64
import io
import json
import pathlib
import queue
import struct
import zipfile

from http_request import send_http
import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = json.loads((ROOT / "tests/data/demo_golden.json").read_text())["prompts"]
ROW = max(GOLDEN, key=lambda row: len(row["ids"]))
VOCAB, HIDDEN = 4096, 384
TOKENS = 24
TYPES = {"int32": "INT32", "uint64": "UINT64", "float16": "FP16", "float32": "FP32", "object": "BYTES", "bool": "BOOL"}


def embeddings():
    with open(ROOT / "demo/model/model.safetensors", "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        first, last = header["model.embed_tokens.weight"]["data_offsets"]
        start = file.tell()
        file.seek(start + first)
        halves = np.frombuffer(file.read(last - first), np.uint16).astype(np.uint32)
    return (halves << 16).view(np.float32).reshape(VOCAB, HIDDEN)


TABLE = embeddings()


def responses(demo, model, fields):
    """All responses of a request. An error is raised."""
    inputs = []
    for name, value in fields.items():
        value = np.asarray(value)
        inputs.append(grpcclient.InferInput(name, value.shape, TYPES[str(value.dtype)]).set_data_from_numpy(value))
    answers, found = queue.Queue(), []
    with grpcclient.InferenceServerClient(f"127.0.0.1:{demo.grpc}") as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        client.async_stream_infer(model, inputs, enable_empty_final_response=True)
        while True:
            result, error = answers.get(timeout=60)
            if error is not None:
                raise error
            if len(result.get_response().outputs) > 0:
                found.append(result)
            if result.get_response().parameters["triton_final_response"].bool_param:
                return found


def ask(demo, **fields):
    (answer,) = responses(demo, "ensemble", {"max_tokens": np.array([[TOKENS]], np.int32), **fields})
    return answer


def text_of(answer):
    return answer.as_numpy("text_output").ravel()[0].decode()


def with_table(ids, places, **more):
    """The fields of a prompt whose tokens at these places come from a table, whose rows are in another order."""
    rows = sorted({ids[place] for place in places}, reverse=True)
    changed = [VOCAB + rows.index(token) if place in places else token for place, token in enumerate(ids)]
    return {"prompt_token_ids": np.array([changed], np.int32), "prompt_embedding_table": TABLE[rows][None].astype(np.float16),
            "prompt_vocab_size": np.array([[len(rows)]], np.int32), **more}


def test_rows_like_tokens_have_the_answer_of_the_tokens(demo):
    ids = ROW["ids"]
    expected = ROW["greedy_text"]
    for places in ({0}, {1, 2, len(ids) - 1}, set(range(len(ids)))):
        answer = ask(demo, **with_table(ids, places))
        assert expected.startswith(text_of(answer)) and len(text_of(answer)) > TOKENS
        assert answer.as_numpy("num_input_tokens").item() == len(ids)
    marked = with_table(ids, {1, 2}, prompt_table_extra_id=np.array([[7]], np.uint64))
    assert text_of(ask(demo, **marked)) == text_of(answer)
    other = with_table(ids, {1, 2})
    other["prompt_embedding_table"] = -other["prompt_embedding_table"]  # another table, the same ids
    assert text_of(ask(demo, **other)) != text_of(answer)


def test_embeddings_precede_the_tokens(demo):
    ids = ROW["ids"]
    for count in (1, 5, len(ids)):
        answer = ask(demo, prompt_token_ids=np.array([ids[count:]], np.int32), prompt_embeds=TABLE[ids[:count]][None])
        assert ROW["greedy_text"].startswith(text_of(answer)) and len(text_of(answer)) > TOKENS, count
        assert answer.as_numpy("num_input_tokens").item() == len(ids)
    text = np.array([[ROW["text"].encode()]], object)
    plain = text_of(ask(demo, text_input=text))
    assert text_of(ask(demo, text_input=text, prompt_embeds=TABLE[None, 70:74] * 3)) != plain


def test_streams_and_the_prompt_in_the_output(demo):
    ids = ROW["ids"]
    fields = with_table(ids, {1, 2}, max_tokens=np.array([[TOKENS]], np.int32), stream=np.array([[True]]))
    pieces = [text_of(piece) for piece in responses(demo, "ensemble", fields)]
    assert len(pieces) > 1 and ROW["greedy_text"].startswith("".join(pieces)) and len("".join(pieces)) > TOKENS
    (engine,) = responses(demo, "tensorrt_llm", {
        "input_ids": fields["prompt_token_ids"], "input_lengths": np.array([[len(ids)]], np.int32), "request_output_len": np.array([[4]], np.int32),
        "prompt_embedding_table": fields["prompt_embedding_table"], "exclude_input_in_output": np.array([[False]])})
    assert engine.as_numpy("output_ids").ravel().tolist() == fields["prompt_token_ids"].ravel().tolist() + ROW["greedy"][:4]


BAD = np.zeros((1, 2, HIDDEN), np.float32)
BAD[0, 1, 3] = np.nan
SOME = TABLE[None, :2].astype(np.float16)


def ids(*values):
    return np.array([values], np.int32)


@pytest.mark.parametrize("fields, message", [
    (dict(prompt_token_ids=ids(5, VOCAB + 2), prompt_embedding_table=SOME, prompt_vocab_size=ids(2)),
     f"'input_ids' has id {VOCAB + 2} at index 1, expected 0 to {VOCAB + 1}: {VOCAB} tokens and the 2 rows of 'prompt_embedding_table'"),
    (dict(prompt_token_ids=ids(5, VOCAB + 1), prompt_embedding_table=SOME, prompt_vocab_size=ids(1)), f"'input_ids' has id {VOCAB + 1} at index 1, expected 0 to {VOCAB}"),
    (dict(prompt_token_ids=ids(VOCAB), prompt_embedding_table=SOME, prompt_vocab_size=ids(3)), "'prompt_vocab_size' is 3, expected 1 to 2"),
    (dict(prompt_token_ids=ids(5), prompt_vocab_size=ids(3)), "'prompt_vocab_size' is 3: it needs 'prompt_embedding_table'"),
    (dict(prompt_token_ids=ids(VOCAB), prompt_embedding_table=SOME), f"token id {VOCAB} at index 0"),
    (dict(prompt_token_ids=ids(VOCAB), prompt_embedding_table=SOME[:, :, :100], prompt_vocab_size=ids(2)),
     f"'prompt_embedding_table' has shape [1, 2, 100], expected [rows, {HIDDEN}]"),
    (dict(prompt_token_ids=ids(VOCAB), prompt_embedding_table=SOME.astype(np.float32), prompt_vocab_size=ids(2)), "prompt_embedding_table"),
    (dict(prompt_token_ids=ids(5), prompt_embeds=BAD), "'prompt_embeds' has nan at [1, 3], expected finite numbers"),
    (dict(prompt_token_ids=ids(5), prompt_embeds=BAD[:, :, :7]), f"'prompt_embeds' has shape [1, 2, 7], expected [rows, {HIDDEN}]"),
    (dict(prompt_token_ids=ids(VOCAB), prompt_embedding_table=SOME, prompt_vocab_size=ids(2), prompt_embeds=TABLE[None, :2]), "expected one of them"),
    (dict(prompt_token_ids=ids(5), prompt_embeds=TABLE[None, :2], return_prompt_log_probs=np.array([[True]])), "an embedding has no probability"),
    (dict(prompt_token_ids=np.zeros((1, 0), np.int32)), "the prompt is empty"),
])
def test_what_does_not_fit_is_refused_by_name_and_others_go_on(demo, fields, message):
    with pytest.raises(InferenceServerException) as caught:
        ask(demo, **fields)
    assert message in caught.value.message()
    assert text_of(ask(demo, text_input=np.array([[b"Once"]], object), max_tokens=np.array([[2]], np.int32)))


def post(demo, **fields):
    """Returns the answer, or the status and the message of an error."""
    status, _, answer = send_http(f"{demo.url}/v1/completions", {"model": "ensemble", "temperature": 0, "max_tokens": TOKENS, **fields})
    return json.loads(answer) if status == 200 else (status, json.loads(answer)["error"]["message"])


def saved(name, rows):
    """A file of torch.save in base64, whose numbers are replaced by these rows."""
    corpus = ROOT / "tests/fuzz/torch_tensor/corpus"
    with zipfile.ZipFile(corpus / name) as old:
        parts = {entry.filename: old.read(entry) for entry in old.infolist()}
    folder = next(iter(parts)).split("/")[0]
    count, columns = rows.shape
    pickled = parts[f"{folder}/data.pkl"]
    number = lambda value: b"J" + struct.pack("<i", value)
    at = pickled.index(b"K\x06tq")  # the size of the storage
    pickled = pickled[:at] + number(rows.size) + pickled[at + 2:]
    pickled = pickled.replace(b"K\x02K\x03\x86", number(count) + number(columns) + b"\x86").replace(b"K\x03K\x01\x86", number(columns) + b"K\x01\x86")
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as new:
        for entry, content in parts.items():
            new.writestr(entry, {f"{folder}/data.pkl": pickled, f"{folder}/data/0": rows.astype(np.float32).tobytes()}.get(entry, content))
    return base64.b64encode(file.getvalue()).decode()


def test_completions_take_what_torch_saves(demo):
    tensor = saved("float_v2", TABLE[ROW["ids"]])
    answer = post(demo, prompt="", prompt_embeds=tensor)
    assert ROW["greedy_text"].startswith(answer["choices"][0]["text"]) and len(answer["choices"][0]["text"]) > TOKENS
    assert answer["usage"]["prompt_tokens"] == len(ROW["ids"])
    both = post(demo, prompt=ROW["text"], prompt_embeds=[tensor, saved("float_v1", -TABLE[ROW["ids"]])])
    texts = [choice["text"] for choice in both["choices"]]
    assert texts[0] == texts[2] == answer["choices"][0]["text"] != texts[1]
    assert post(demo, prompt_embeds="PK") == (400, "prompt_embeds: expected a tensor as torch.save writes it, got no archive")
    assert post(demo, prompt_embeds="?") == (400, "prompt_embeds: expected base64")
    code, message = post(demo, prompt_embeds=saved("float_v2", TABLE[:2, :7]))
    assert code == 400 and f"input 'prompt_embeds' has shape [1, 2, 7], expected [rows, {HIDDEN}]" in message
