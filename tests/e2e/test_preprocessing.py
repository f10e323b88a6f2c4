"""The tokenizer backend's preprocessing mode by itself: the truncation and padding of tokenizer.json. The expected values are from PyPI
`tokenizers`."""
import json
import pathlib
import shutil

import numpy as np
import pytest
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

tokenizers = pytest.importorskip("tokenizers")

DEMO = pathlib.Path(__file__).resolve().parents[2] / "demo" / "model"
TEXT = "Once upon a time there was a little girl who lived in a wood."
CUTS = {"right": {"max_length": 5, "stride": 0, "direction": "Right", "strategy": "LongestFirst"},
        "left": {"max_length": 7, "stride": 2, "direction": "Left", "strategy": "OnlyFirst"}}

MULTIMODAL = """
input [ { name: "QUERY" data_type: TYPE_STRING dims: [ 1 ] }, { name: "REQUEST_OUTPUT_LEN" data_type: TYPE_INT32 dims: [ 1 ] },
        { name: "IMAGE" data_type: TYPE_FP16 dims: [ -1 ] optional: true },
        { name: "PROMPT_EMBEDDING_TABLE" data_type: TYPE_FP16 dims: [ -1, -1 ] optional: true } ]
output [ { name: "INPUT_ID" data_type: TYPE_INT32 dims: [ -1 ] }, { name: "REQUEST_INPUT_LEN" data_type: TYPE_INT32 dims: [ 1 ] },
         { name: "OUT_PROMPT_EMBEDDING_TABLE" data_type: TYPE_FP16 dims: [ -1, -1 ] } ]
"""


def write_model(root, name, truncation, parameter=None):
    (root / name / "1").mkdir(parents=True)
    spec = json.loads((DEMO / "tokenizer.json").read_text())
    spec["truncation"] = truncation
    (root / name / "1" / "tokenizer.json").write_text(json.dumps(spec))
    lines = ['backend: "tokenizer"', "max_batch_size: 8", 'parameters { key: "mode" value { string_value: "preprocessing" } }']
    if parameter:
        lines.append('parameters { key: "truncation" value { string_value: "%s" } }' % parameter)
    (root / name / "config.pbtxt").write_text("\n".join(lines))


@pytest.fixture(scope="module")
def server(start_server, tmp_path_factory):
    root = tmp_path_factory.mktemp("repository")
    for name, truncation in CUTS.items():
        write_model(root, name, truncation, "file")
        write_model(root, name + "_whole", truncation)
    write_model(root, "roles", None)
    (root / "roles/1/tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>", "bos_token": "<|im_start|>", "add_bos_token": True}))
    (root / "roles/1/generation_config.json").write_text(json.dumps({"eos_token_id": 2}))
    write_model(root, "multimodal", None)
    with open(root / "multimodal/config.pbtxt", "a") as config:
        config.write(MULTIMODAL)
    for name, override in (("asked", None), ("refused", "false")):
        (root / name / "1").mkdir(parents=True)
        shutil.copy(DEMO / "tokenizer.json", root / name / "1")
        (root / name / "1/tokenizer_config.json").write_text(json.dumps({"clean_up_tokenization_spaces": True}))
        parameters = {"mode": "postprocessing", **({"clean_up_tokenization_spaces": override} if override else {})}
        lines = [f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}' for key, value in parameters.items()]
        (root / name / "config.pbtxt").write_text("\n".join(['backend: "tokenizer"', "max_batch_size: 8", *lines]))
    return start_server(root)


def decoded(server, model, ids, **further):
    inputs = []
    for name, value in {"TOKENS_BATCH": np.array([[ids]], np.int32), "SEQUENCE_LENGTH": np.array([[len(ids)]], np.int32), **further}.items():
        inputs.append(httpclient.InferInput(name, value.shape, "BYTES" if value.dtype == object else "INT32"))
        inputs[-1].set_data_from_numpy(value)
    with httpclient.InferenceServerClient(f"127.0.0.1:{server.http}", network_timeout=120, connection_timeout=120) as client:
        return client.infer(model, inputs).as_numpy("OUTPUT").flatten()[0].decode()


def test_postprocessing_removes_the_spaces_that_tokenizer_config_names(server):
    text, clean = "Yes , it 's a dog . Is n't it ?", "Yes, it's a dog. Isn't it?"
    ids = tokenizers.Tokenizer.from_file(str(DEMO / "tokenizer.json")).encode(text, add_special_tokens=False).ids
    assert decoded(server, "refused", ids) == text
    assert decoded(server, "asked", ids) == clean
    pieces = [decoded(server, "asked", ids[at:at + 1], PRIOR_IDS=np.array([ids[:at]], np.int32),
                      FINISH_REASON=np.array([[b"" if at + 1 < len(ids) else b"stop"]], dtype=object)) for at in range(1, len(ids))]
    first = decoded(server, "asked", ids[:1], PRIOR_IDS=np.zeros((1, 0), np.int32), FINISH_REASON=np.array([[b""]], dtype=object))
    assert first + "".join(pieces) == clean


def prompt_ids(server, model, **further):
    inputs = []
    for name, value in further.items():
        inputs.append(httpclient.InferInput(name, value.shape, "FP16"))
        inputs[-1].set_data_from_numpy(value)
    for name, value, datatype in (("QUERY", np.array([[TEXT.encode()]], dtype=object), "BYTES"),
                                  ("REQUEST_OUTPUT_LEN", np.array([[1]], np.int32), "INT32")):
        inputs.append(httpclient.InferInput(name, value.shape, datatype))
        inputs[-1].set_data_from_numpy(value)
    with httpclient.InferenceServerClient(f"127.0.0.1:{server.http}", network_timeout=120, connection_timeout=120) as client:
        answer = client.infer(model, inputs)
    ids, length = answer.as_numpy("INPUT_ID")[0].tolist(), int(answer.as_numpy("REQUEST_INPUT_LEN").flatten()[0])
    assert length == len(ids)
    return ids


@pytest.mark.parametrize("model", CUTS)
def test_prompt_is_truncated_as_tokenizer_json_says_if_enabled(server, model):
    reference = tokenizers.Tokenizer.from_file(str(DEMO / "tokenizer.json"))
    whole = reference.encode(TEXT).ids
    cut = CUTS[model]
    reference.enable_truncation(cut["max_length"], stride=cut["stride"], direction=cut["direction"].lower(),
                                strategy={"LongestFirst": "longest_first", "OnlyFirst": "only_first"}[cut["strategy"]])
    assert prompt_ids(server, model) == reference.encode(TEXT).ids
    assert prompt_ids(server, model + "_whole") == whole and len(whole) > cut["max_length"]


@pytest.mark.parametrize("name, shape", [("IMAGE", (1, 3)), ("PROMPT_EMBEDDING_TABLE", (1, 2, 2))])
def test_image_tensors_may_be_configured_but_not_sent(server, name, shape):
    """The templates of release 0.12 declare these tensors."""
    assert prompt_ids(server, "multimodal") == tokenizers.Tokenizer.from_file(str(DEMO / "tokenizer.json")).encode(TEXT).ids
    with pytest.raises(InferenceServerException, match=f"'{name}'"):
        prompt_ids(server, "multimodal", **{name: np.ones(shape, np.float16)})


def test_token_named_only_by_role_reaches_no_model(server):
    """The token's id is beyond the model's vocabulary: the engine would refuse it as an end id, and an embedding bias with an element for it."""
    reference = tokenizers.Tokenizer.from_file(str(DEMO / "tokenizer.json"))
    inputs = []
    for name, value, datatype in (("QUERY", TEXT, "BYTES"), ("REQUEST_OUTPUT_LEN", 1, "INT32"),
                                  ("EMBEDDING_BIAS_WORDS", "time<|im_end|>", "BYTES"), ("EMBEDDING_BIAS_WEIGHTS", 2.5, "FP32")):
        inputs.append(httpclient.InferInput(name, (1, 1), datatype))
        inputs[-1].set_data_from_numpy(np.array([[value]], {"BYTES": object, "INT32": np.int32, "FP32": np.float32}[datatype]))
    with httpclient.InferenceServerClient(f"127.0.0.1:{server.http}", network_timeout=120, connection_timeout=120) as client:
        answer = client.infer("roles", inputs)
    assert answer.as_numpy("OUT_END_ID").tolist() == [[2]]
    assert answer.as_numpy("INPUT_ID").tolist() == [reference.encode(TEXT).ids]
    bias = answer.as_numpy("EMBEDDING_BIAS")[0]
    assert bias.shape == (reference.get_vocab_size(),)
    assert np.flatnonzero(bias).tolist() == sorted(set(reference.encode("time", add_special_tokens=False).ids))
