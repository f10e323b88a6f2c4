"""A draft model, Medusa heads, an EAGLE-3 head, and drafts with their logits from a client, on a whole server: the answers are those without drafts."""
import json
import pathlib
import struct
import urllib.error
import urllib.request

import numpy
import pytest
from tested_engine import ENGINE

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROMPT = [12, 45, 78, 101, 7, 33, 250, 18]
VOCABULARY = 4096


def config(speculation, more):
    values = {"gpt_model_path": ROOT / "demo" / "model", "max_seq_len": 128, "max_num_sequences": 4, "exclude_input_in_output": "true",
              "speculative_decoding": speculation, **more}
    return f'backend: "{ENGINE}"\nmax_batch_size: 0\n' + "".join(
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n' for key, value in values.items())


def write(repository, name, speculation, **more):
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(config(speculation, more))


def write_eagle3(folder):
    """A head with random weights for the demo model."""
    hidden, inner, draft_vocabulary, sizes = 384, 960, 1000, {"vocab_size": VOCABULARY, "draft_vocab_size": 1000}
    shapes = {"fc": (hidden, 3 * hidden), "norm": (hidden,), "lm_head": (draft_vocabulary, hidden), "midlayer.hidden_norm": (hidden,),
              "midlayer.input_layernorm": (hidden,), "midlayer.post_attention_layernorm": (hidden,), "midlayer.self_attn.q_proj": (hidden, 2 * hidden),
              "midlayer.self_attn.k_proj": (128, 2 * hidden), "midlayer.self_attn.v_proj": (128, 2 * hidden), "midlayer.self_attn.o_proj": (hidden, hidden),
              "midlayer.mlp.gate_proj": (inner, hidden), "midlayer.mlp.up_proj": (inner, hidden), "midlayer.mlp.down_proj": (hidden, inner)}
    random = numpy.random.default_rng(8)
    tensors = {f"{name}.weight": (random.standard_normal(shape) / 20 + (len(shape) == 1)).astype(numpy.float32) for name, shape in shapes.items()}
    tensors["d2t"] = numpy.full(draft_vocabulary, 3, numpy.int64)
    header, offset = {}, 0
    for name, values in tensors.items():
        kind = "I64" if values.dtype == numpy.int64 else "F32"
        header[name] = {"dtype": kind, "shape": list(values.shape), "data_offsets": [offset, offset + values.nbytes]}
        offset += values.nbytes
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(values.tobytes() for values in tensors.values()))
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": hidden, "intermediate_size": inner, "num_attention_heads": 6,
        "num_key_value_heads": 2, "num_hidden_layers": 1, "max_position_embeddings": 1024, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, **sizes}))


def load(server, name):
    urllib.request.urlopen(urllib.request.Request(f"{server.url}/v2/repository/models/{name}/load", data=b"{}"), timeout=60).close()


def refusal(call, *arguments):
    with pytest.raises(urllib.error.HTTPError) as caught:
        call(*arguments)
    return json.load(caught.value)["error"]


def ask(server, model, **more):
    tensors = {"input_ids": ("INT32", [8], PROMPT), "input_lengths": ("INT32", [1], [8]), "request_output_len": ("INT32", [1], [40]),
               "return_perf_metrics": ("BOOL", [1], [True]), **more}
    body = {"inputs": [{"name": name, "datatype": kind, "shape": shape, "data": data} for name, (kind, shape, data) in tensors.items()]}
    request = urllib.request.Request(f"{server.url}/v2/models/{model}/infer", data=json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=60) as answer:
        return {each["name"]: each["data"] for each in json.load(answer)["outputs"]}


@pytest.fixture(scope="module")
def head(tmp_path_factory):
    folder = tmp_path_factory.mktemp("head")
    write_eagle3(folder)
    return folder


@pytest.fixture(scope="module")
def server(own_server, own_repository, head):
    write(own_repository, "plain", "off")
    write(own_repository, "drafted", f"draft={ROOT / 'demo' / 'draft'}")
    write(own_repository, "medusa", f"medusa={ROOT / 'demo' / 'medusa'}")
    write(own_repository, "eagle3", f"eagle3={head}")
    write(own_repository, "eagle3_tree", f"eagle3={head}", max_draft_tokens=15)
    write(own_repository, "eagle3_paths", f"eagle3={head}", eagle_choices="{0}, {0, 0}, {1}, {2}, {0, 1}", decoding_mode="eagle")
    for name in ("plain", "drafted", "medusa", "eagle3", "eagle3_tree", "eagle3_paths"):
        load(own_server, name)
    return own_server


SAMPLED = {"runtime_top_p": ("FP32", [1], [0.95]), "seed": ("UINT64", [1], [7])}


@pytest.mark.parametrize("model, drafter", [("drafted", "draft"), ("medusa", "medusa"), ("eagle3", "eagle3"), ("eagle3_tree", "eagle3"), ("eagle3_paths", "eagle3")])
@pytest.mark.parametrize("more", [{}, SAMPLED], ids=["greedy", "sampled"])
def test_a_drafter_with_weights_changes_no_answer(server, more, model, drafter):
    plain = ask(server, "plain", **more)
    assert plain["total_draft_tokens"] == [0]
    # How soon drafting is tried depends on what steps cost on this machine. WeightedDrafterTest drafts in every step.
    for _ in range(5):
        drafted = ask(server, model, **more)
        assert drafted["output_ids"] == plain["output_ids"]
        rate = drafted["total_accepted_draft_tokens"][0] / max(1, drafted["total_draft_tokens"][0])
        assert drafted["acceptance_rate"][0] == pytest.approx(rate)
    with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics}/metrics", timeout=60) as answer:
        lines = [line for line in answer.read().decode().splitlines() if line.startswith("nereid_llm_speculation") and f'model="{model}"' in line]
    assert {label for line in lines for label in (drafter, "client") if f'drafter="{label}"' in line} == {drafter, "client"}
    assert len([line for line in lines if 'total="mean_accepted_length"' in line]) == 2


def test_a_clients_drafts_with_logits_are_verified(server):
    ids = ask(server, "plain")["output_ids"]
    drafts = [*ids[:3], (ids[3] + 1) % VOCABULARY]
    rows = [[9.0 if token == draft else 0.0 for token in range(VOCABULARY)] for draft in drafts]
    tensors = {"draft_input_ids": ("INT32", [4], drafts), "draft_logits": ("FP32", [4, VOCABULARY], sum(rows, []))}
    greedy = ask(server, "plain", **tensors)
    # The step of the prompt samples the first token; the second to the fourth are verified.
    assert greedy["output_ids"] == ids and greedy["total_accepted_draft_tokens"] == [2]
    sampled = ask(server, "plain", **SAMPLED)["output_ids"][:3]
    likely = {"draft_input_ids": ("INT32", [3], sampled),
              "draft_logits": ("FP32", [3, VOCABULARY], [9.0 if token == draft else 0.0 for draft in sampled for token in range(VOCABULARY)])}
    accepted = ask(server, "plain", **likely, **SAMPLED, draft_acceptance_threshold=("FP32", [1], [1e-6]))
    assert accepted["output_ids"][:3] == sampled and accepted["total_accepted_draft_tokens"] == [2]
    too_few = {**tensors, "draft_logits": ("FP32", [3, VOCABULARY], sum(rows[:3], []))}
    assert f"'draft_logits' has {3 * VOCABULARY} values: expected [4, {VOCABULARY}]" in refusal(lambda: ask(server, "plain", **too_few))
    beyond = refusal(lambda: ask(server, "plain", **tensors, draft_acceptance_threshold=("FP32", [1], [1.5])))
    assert "'draft_acceptance_threshold' is 1.5, expected 0 to 1" in beyond


@pytest.mark.parametrize("choices, parts", [
    ("{0}, {1}, {1, 0}", ["a path of 2 ranks goes on behind rank 1", "along its likeliest tokens only"]), ("{0}, {0, 1, 0}", ["{0, 1, 0}", "its parent"]),
    ("{16}", ["rank 16, expected 0 to 15"]), ("{0", ["the end", "expected a list of paths"])])
def test_paths_that_a_head_can_not_draft_are_refused(server, own_repository, head, request, choices, parts):
    name = f"paths_{request.node.callspec.indices['choices']}"
    write(own_repository, name, f"eagle3={head}", eagle_choices=choices)
    message = refusal(load, server, name)
    for part in ["parameter 'eagle_choices'", *parts]:
        assert part in message, message


def write_smaller_vocabulary(folder):
    """The draft model without its last token."""
    config = json.loads((ROOT / "demo" / "draft" / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": VOCABULARY - 1}))
    data = (ROOT / "demo" / "draft" / "model.safetensors").read_bytes()
    size = 8 + int.from_bytes(data[:8], "little")
    header, blobs, offset = json.loads(data[8:size]), [], 0
    header.pop("__metadata__")
    for name, tensor in header.items():
        first, last = tensor["data_offsets"]
        if name == "model.embed_tokens.weight":
            tensor["shape"][0] -= 1
            last -= 2 * tensor["shape"][1]
        blobs.append(data[size + first: size + last])
        tensor["data_offsets"] = [offset, offset + len(blobs[-1])]
        offset += len(blobs[-1])
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + b"".join(blobs))


def test_a_draft_model_that_does_not_fit_is_refused(server, own_repository, tmp_path):
    write_smaller_vocabulary(tmp_path)
    for name, speculation, parts in [("absent", "draft=/absent", ["'draft=/absent'", "/absent"]), ("small", f"draft={tmp_path}", ["a vocabulary of 4095 tokens", "one of 4096"]),
                                     ("head", f"eagle3={ROOT / 'demo' / 'model'}", ["head '", "fc.weight"]), ("none", "draft", ["needs a folder"]),
                                     ("heads", f"medusa={ROOT / 'demo' / 'model'}", ["Medusa heads '", "no heads"])]:
        write(own_repository, name, speculation)
        message = refusal(load, server, name)
        for part in ["speculative_decoding", *parts]:
            assert part in message, message
