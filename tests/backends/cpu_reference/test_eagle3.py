"""Tokens that an EAGLE-3 head drafts, compared with a plain head on the hidden states of a plain model."""
import json
import subprocess

import numpy
import plain_eagle3
import plain_llama
import pytest
import run_logits

TARGET = {**plain_llama.CONFIG, "num_hidden_layers": 6}
CONFIG = {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
          "num_key_value_heads": 2, "num_hidden_layers": 1, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
          "vocab_size": 96, "draft_vocab_size": 40}


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    folder = tmp_path_factory.mktemp("target")
    linear, other = plain_llama.random_weights(4, TARGET)
    plain_llama.save_checkpoint(folder, {**{f"{name}.weight": value for name, value in linear.items()}, **other}, TARGET)
    return folder, linear, other


def run(target, head, prompt, num_output=12, choices=()):
    """Returns the proposals, each {"tokens", "drafts"}, and the answer's ids; or the error."""
    program = run_logits.path().with_name("draft_driver")
    words = [str(program), str(target), f"eagle3={head}", str(num_output), *choices]
    done = subprocess.run(words, input=" ".join(map(str, prompt)), capture_output=True, text=True, timeout=300)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode in (0, 3), done.stdout[-2000:] + done.stderr[-2000:]
    return lines


def write_head(folder, weights, config, speculators=False):
    if speculators:
        sizes = {name: config[name] for name in ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "rms_norm_eps",
                                                 "max_position_embeddings", "rope_theta", "vocab_size", "num_hidden_layers")}
        rest = {name: value for name, value in config.items() if name not in sizes and name not in ("model_type", "architectures")}
        method = {"proposal_type": "greedy", "speculative_tokens": 5}
        config = {"speculators_model_type": "eagle3", "speculators_config": {"algorithm": "eagle3", "proposal_methods": [method]},
                  "transformer_layer_config": {**sizes, "model_type": "llama"}, **rest}
        weights = {name.replace("midlayer.", "layers.0."): value for name, value in weights.items()}
    plain_llama.save_checkpoint(folder, weights, config)


@pytest.mark.parametrize("form, more", [("plain", {}), ("speculators", {"norm_before_residual": True}),
                                        ("plain", {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 5, 6]}})])
def test_drafts_are_those_of_the_plain_head(tmp_path, target, form, more):
    folder, linear, other = target
    config = {**CONFIG, **more}
    layers = more.get("eagle_config", {}).get("eagle_aux_hidden_state_layer_ids", [2, 3, 3])
    weights = plain_eagle3.random_head(8, config, TARGET["vocab_size"])
    write_head(tmp_path, weights, config, form == "speculators")
    prompt = numpy.random.default_rng(1).integers(3, 96, 9).tolist()
    *proposals, answer = run(folder, tmp_path, prompt)
    assert len(proposals) >= 4 and len(answer["ids"]) == 12
    assert {len(each["drafts"]) for each in proposals} >= {4}
    for proposal in proposals:
        tokens, drafts = proposal["tokens"], proposal["drafts"]
        inputs = []
        plain_llama.logits(linear, other, tokens[:-1], TARGET, inputs=inputs)
        features = numpy.concatenate([inputs[layer] for layer in layers], -1)
        embedding = other["model.embed_tokens.weight"]
        for draft, logits in zip(drafts, plain_eagle3.logits_of_chain(weights, config, embedding, tokens, features, drafts)):
            draft_id = int(numpy.flatnonzero(numpy.arange(40) + weights["d2t"] == draft)[0])
            assert logits[draft_id] > logits.max() - 1e-3, (tokens, drafts)


def test_a_tree_has_the_next_best_tokens_beside_the_chain(tmp_path, target):
    folder, linear, other = target
    weights = plain_eagle3.random_head(8, CONFIG, TARGET["vocab_size"])
    write_head(tmp_path, weights, CONFIG)
    paths = [[0], [0, 0], [1], [0, 1], [0, 0, 0], [0, 0, 3]]
    *proposals, _ = run(folder, tmp_path, [5, 6, 7], choices=[", ".join("{" + ", ".join(map(str, path)) + "}" for path in paths)])
    for proposal in proposals[:3]:
        tokens, drafts = proposal["tokens"], proposal["drafts"]
        assert proposal["parents"] == [-1, 0, -1, 0, 1, 1]
        inputs = []
        plain_llama.logits(linear, other, tokens[:-1], TARGET, inputs=inputs)
        features = numpy.concatenate([inputs[layer] for layer in (2, 3, 3)], -1)
        chain = [drafts[0], drafts[1], drafts[4]]
        rows = plain_eagle3.logits_of_chain(weights, CONFIG, other["model.embed_tokens.weight"], tokens, features, chain)
        ranks = [(numpy.arange(40) + weights["d2t"])[numpy.argsort(-row)] for row in rows]
        assert drafts == [ranks[len(path) - 1][path[-1]] for path in paths]


@pytest.mark.parametrize("change, named", [
    ({"target_hidden_size": 128}, ["hidden size 128", "has 64"]), ({"vocab_size": 97}, ["97", "96"]), ({"draft_vocab_size": 50}, ["lm_head.weight", "50", "40"]),
    ({"eagle_aux_hidden_state_layer_ids": [2, 3, 7]}, ["layer 7", "6 layers"]), ({"norm_before_fc": True}, ["norm_before_fc"]),
    ({"intermediate_size": 80}, ["midlayer.mlp.gate_proj.weight", "80", "96"])])
def test_a_head_that_does_not_fit_is_refused(tmp_path, target, change, named):
    write_head(tmp_path, plain_eagle3.random_head(8, CONFIG, 96), {**CONFIG, **change})
    [line] = run(target[0], tmp_path, [5, 6])
    for part in named:
        assert part in line["error"], line


def test_ids_outside_of_the_vocabulary_are_refused(tmp_path, target):
    weights = plain_eagle3.random_head(8, CONFIG, 96)
    weights["d2t"][39] = 90
    write_head(tmp_path, weights, CONFIG)
    [line] = run(target[0], tmp_path, [5, 6])
    assert "'d2t': draft id 39 and offset 90" in line["error"]
