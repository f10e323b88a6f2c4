"""Fresh random checkpoints of every architecture compared with plain_decoder.py, which uses NumPy only: logits within 1e-4 and the same greedy
tokens, on every instruction set of this machine. plain_decoder.py itself is compared with recorded outputs of PyPI `transformers`
(NEREID_TEST_DATA/tiny).

The seeds are fixed; NEREID_FRESH_SEEDS="7 8" uses others.
"""
import json
import os
import pathlib

import numpy as np
import pytest

import plain_decoder
import plain_llama  # used to write safetensors
import run_logits

SEEDS = [int(seed) for seed in os.environ.get("NEREID_FRESH_SEEDS", "3 4").split()]
TINY = pathlib.Path(os.environ.get("NEREID_TEST_DATA", "none")) / "tiny"
VOCAB = 128
NUM_GREEDY = 12


def rope(kind="default", theta=10000.0, **keys):
    return {"rope_type": kind, "rope_theta": theta, **keys}


def llama(kind, name, **keys):
    base = dict(model_type=kind, architectures=[name], vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, max_position_embeddings=192, rms_norm_eps=1e-5, hidden_act="silu", tie_word_embeddings=False, rope_parameters=rope(),
                eos_token_id=2)
    return {**base, **keys}


def gemma(kind, name, layers, **keys):
    types = ["full_attention" if (i + 1) % layers == 0 else "sliding_attention" for i in range(layers)]
    return llama(kind, name, head_dim=32, sliding_window=24, query_pre_attn_scalar=24, tie_word_embeddings=True, num_hidden_layers=layers, layer_types=types,
                 hidden_activation="gelu_pytorch_tanh", hidden_act=None, **keys)


def gpt(kind, name, activation, **keys):
    return dict(model_type=kind, architectures=[name], vocab_size=VOCAB, n_embd=64, n_layer=2, n_head=4, n_positions=192, activation_function=activation,
                layer_norm_epsilon=1e-5, n_inner=None, tie_word_embeddings=True, eos_token_id=2, **keys)


LONG = 48
FACTORS = dict(short_factor=[1.0 + i / 8 for i in range(8)], long_factor=[2.0 + i for i in range(8)])
LLAMA, NEOX = "LlamaForCausalLM", dict(hidden_act="gelu", layer_norm_eps=1e-5, attention_bias=True, num_key_value_heads=4,
                                       rope_parameters=rope(partial_rotary_factor=0.25))


def pythia(**keys):
    """A config with the keys of older versions."""
    config = llama("gpt_neox", "GPTNeoXForCausalLM", use_parallel_residual=True, **NEOX, **keys)
    del config["rope_parameters"]
    return config


QWEN3_MOE, EXPERTS = "Qwen3MoeForCausalLM", dict(head_dim=32, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=48, norm_topk_prob=True,
                                                 attention_bias=False)
CASES = {
    "llama": llama("llama", LLAMA),
    "llama-bias-mqa": llama("llama", LLAMA, attention_bias=True, mlp_bias=True, num_key_value_heads=1),
    "llama-tied": llama("llama", LLAMA, tie_word_embeddings=True, head_dim=32),
    "llama-linear": llama("llama", LLAMA, rope_parameters=rope("linear", factor=3.0)),
    "llama-dynamic": llama("llama", LLAMA, rope_parameters=rope("dynamic", factor=2.0)),
    "llama-llama3": llama("llama", LLAMA, head_dim=32, rope_parameters=rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                                                           original_max_position_embeddings=64)),
    "llama-yarn": llama("llama", LLAMA, rope_parameters=rope("yarn", factor=4.0, original_max_position_embeddings=LONG)),
    "llama-yarn-no-factor": llama("llama", LLAMA, rope_parameters=rope("yarn", factor=None, original_max_position_embeddings=LONG)),
    "mistral": llama("mistral", "MistralForCausalLM", head_dim=32, sliding_window=None),
    "mistral-window": llama("mistral", "MistralForCausalLM", sliding_window=20),
    "mixtral": llama("mixtral", "MixtralForCausalLM", num_local_experts=4, num_experts_per_tok=2, sliding_window=None),
    "qwen2": llama("qwen2", "Qwen2ForCausalLM", use_sliding_window=False, sliding_window=None),
    "qwen2-window": llama("qwen2", "Qwen2ForCausalLM", use_sliding_window=True, sliding_window=20, max_window_layers=1),
    "qwen3": llama("qwen3", "Qwen3ForCausalLM", head_dim=32, attention_bias=False),
    "qwen3-window": llama("qwen3", "Qwen3ForCausalLM", head_dim=32, attention_bias=False, use_sliding_window=True, sliding_window=20, max_window_layers=1),
    "qwen3_moe": llama("qwen3_moe", QWEN3_MOE, decoder_sparse_step=1, mlp_only_layers=[], **EXPERTS),
    "qwen3_moe-dense-between": llama("qwen3_moe", QWEN3_MOE, num_hidden_layers=6, decoder_sparse_step=2, mlp_only_layers=[3], **EXPERTS),
    "phi3": llama("phi3", "Phi3ForCausalLM", sliding_window=None, original_max_position_embeddings=192),
    "phi3-window": llama("phi3", "Phi3ForCausalLM", sliding_window=20, original_max_position_embeddings=192),
    "phi3-longrope": llama("phi3", "Phi3ForCausalLM", sliding_window=None, original_max_position_embeddings=LONG,
                           rope_parameters=rope("longrope", original_max_position_embeddings=LONG, **FACTORS)),
    "starcoder2": llama("starcoder2", "Starcoder2ForCausalLM", norm_epsilon=1e-5, use_bias=True, hidden_act="gelu_pytorch_tanh", sliding_window=None),
    "gemma2": gemma("gemma2", "Gemma2ForCausalLM", 2, attn_logit_softcapping=50.0, final_logit_softcapping=30.0),
    "gemma3": gemma("gemma3_text", "Gemma3ForCausalLM", 3, rope_parameters={"full_attention": rope(theta=1e6), "sliding_attention": rope()}),
    "gpt2": gpt("gpt2", "GPT2LMHeadModel", "gelu_new"),
    "gpt_bigcode": gpt("gpt_bigcode", "GPTBigCodeForCausalLM", "gelu_pytorch_tanh", multi_query=True),
    "gpt_bigcode-mha": gpt("gpt_bigcode", "GPTBigCodeForCausalLM", "gelu_pytorch_tanh", multi_query=False),
    "gpt_neox": llama("gpt_neox", "GPTNeoXForCausalLM", use_parallel_residual=True, **NEOX),
    "gpt_neox-serial": llama("gpt_neox", "GPTNeoXForCausalLM", use_parallel_residual=False, **NEOX),
    "gpt_neox-base": pythia(rotary_emb_base=500, rotary_pct=0.5),
    "gpt_neox-base-alone": pythia(rotary_emb_base=500),
    "mixtral-window": llama("mixtral", "MixtralForCausalLM", num_local_experts=4, num_experts_per_tok=2, sliding_window=20),
    "starcoder2-window": llama("starcoder2", "Starcoder2ForCausalLM", norm_epsilon=1e-5, use_bias=True, hidden_act="gelu_pytorch_tanh", sliding_window=20,
                               tie_word_embeddings=True),
    "qwen3_moe-shares-kept": llama("qwen3_moe", QWEN3_MOE, decoder_sparse_step=1, mlp_only_layers=[], **{**EXPERTS, "norm_topk_prob": False}),
    "phi4-mini": llama("phi3", "Phi3ForCausalLM", sliding_window=None, original_max_position_embeddings=LONG, tie_word_embeddings=True,
                       rope_parameters=rope("longrope", original_max_position_embeddings=LONG, partial_rotary_factor=0.75,
                                            short_factor=FACTORS["short_factor"][:6], long_factor=FACTORS["long_factor"][:6])),
    "gemma3-scaled": gemma("gemma3_text", "Gemma3ForCausalLM", 3, rope_parameters={"full_attention": rope("linear", 1e6, factor=8.0), "sliding_attention": rope()}),
    "llama-gelu": llama("llama", LLAMA, hidden_act="gelu"),
    "llama-quick_gelu": llama("llama", LLAMA, hidden_act="quick_gelu"),
    "llama-swish": llama("llama", LLAMA, hidden_act="swish", attention_bias=True, mlp_bias=False),
    "llama-relu": llama("llama", LLAMA, hidden_act="relu", attention_bias=False, mlp_bias=True),
    "gpt2-quick_gelu": gpt("gpt2", "GPT2LMHeadModel", "quick_gelu"),
    "gpt2-gelu-untied": gpt("gpt2", "GPT2LMHeadModel", "gelu") | {"tie_word_embeddings": False},
    "gpt2-by-layer": gpt("gpt2", "GPT2LMHeadModel", "gelu_new", scale_attn_by_inverse_layer_idx=True, reorder_and_upcast_attn=True) | {"n_layer": 3},
    "gpt2-unscaled": gpt("gpt2", "GPT2LMHeadModel", "gelu_fast", scale_attn_weights=False, scale_attn_by_inverse_layer_idx=True),
    "gpt_bigcode-unscaled": gpt("gpt_bigcode", "GPTBigCodeForCausalLM", "gelu_pytorch_tanh", multi_query=True, scale_attn_weights=False),
}


def old_rope(config, **keys):
    """Writes the rope as transformers before 5 does."""
    config = dict(config)
    rope = dict(config.pop("rope_parameters"))
    return {**config, "rope_theta": rope.pop("rope_theta"), "torch_dtype": "float32", "rope_scaling": rope if rope["rope_type"] != "default" else None, **keys}


def old_gemma3(config):
    config = dict(config)
    whole = dict(config.pop("rope_parameters")["full_attention"])
    del config["layer_types"]
    return {**config, "rope_theta": whole.pop("rope_theta"), "rope_scaling": whole, "rope_local_base_freq": 10000.0, "sliding_window_pattern": 3}


def without(config, *keys):
    return {key: value for key, value in config.items() if key not in keys}


PHI4 = CASES["phi4-mini"]
# Equivalent spellings that replace a case's config.
SPELLINGS = {
    "llama": [CASES["llama"] | {"dtype": "float32", "torch_dtype": None}, old_rope(CASES["llama"]), without(CASES["llama"], "tie_word_embeddings", "hidden_act")],
    "llama-llama3": [old_rope(CASES["llama-llama3"])],
    "llama-yarn": [old_rope(CASES["llama-yarn"])],
    "llama-tied": [CASES["llama-tied"] | {"head_dim": 32, "architectures": None}],
    "mixtral": [without(CASES["mixtral"], "sliding_window", "tie_word_embeddings") | {"rms_norm_eps": 1e-5}, old_rope(CASES["mixtral"])],
    "qwen2": [without(CASES["qwen2"], "use_sliding_window", "tie_word_embeddings") | {"layer_types": ["full_attention"] * 2}],
    "phi3": [without(CASES["phi3"], "rms_norm_eps", "sliding_window")],
    "phi4-mini": [without(old_rope(PHI4), "rope_scaling") | {"partial_rotary_factor": 0.75, "rope_scaling": {
        "type": "longrope", "short_factor": FACTORS["short_factor"][:6], "long_factor": FACTORS["long_factor"][:6]}}],
    "starcoder2-window": [without(CASES["starcoder2-window"], "tie_word_embeddings", "use_bias", "norm_epsilon"),
                          CASES["starcoder2-window"] | {"layer_types": ["sliding_attention"] * 2}],
    "gemma2": [without(CASES["gemma2"], "tie_word_embeddings", "hidden_activation", "attn_logit_softcapping", "final_logit_softcapping", "layer_types")],
    "gemma3-scaled": [old_gemma3(CASES["gemma3-scaled"]), CASES["gemma3-scaled"] | {"attn_logit_softcapping": None}],
    "gpt2": [without(CASES["gpt2"], "n_inner", "tie_word_embeddings", "activation_function", "layer_norm_epsilon")],
    "gpt_bigcode": [without(CASES["gpt_bigcode"], "multi_query", "tie_word_embeddings")],
    "gpt_neox": [CASES["gpt_neox"] | {"rope_parameters": None, "rotary_pct": 0.25, "rotary_emb_base": 10000}],
}


def prompts(name, seed):
    """For longrope, prompts whose contexts stay on one side of the trained context, because their greedy tokens are checked in one pass."""
    random = np.random.default_rng(seed)
    return [random.integers(3, VOCAB, length).tolist() for length in ((7, 20, LONG + 8, LONG + 30) if name in ("phi3-longrope", "phi4-mini") else (1, 7, 60))]


def check(got, reference, ids):
    wanted = reference.logits(ids)
    error = np.abs(np.array(got["logits"]) - wanted[-1]).max()
    assert error < 1e-4 * max(1.0, np.abs(wanted[-1]).max()), got["isa"]
    run_logits.check_argmax(got, wanted)
    # All greedy tokens are checked in one pass: each must be the best one after those before it.
    row = reference.logits(ids + got["greedy"])[len(ids) - 1:-1]
    for step, token in enumerate(got["greedy"]):
        assert row[step].max() - row[step][token] < 1e-3, (got["isa"], step)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", CASES)
def test_a_fresh_checkpoint_answers_as_the_plain_decoder(tmp_path, name, seed):
    config, weights = CASES[name], plain_decoder.FreshWeights(seed)
    reference = plain_decoder.decoder(config, weights)
    asked = prompts(name, seed)
    reference.logits(asked[0])  # creates the weights
    plain_llama.save_checkpoint(tmp_path, weights.tensors, config)
    answers = run_logits.run(tmp_path, asked, num_greedy=NUM_GREEDY)
    assert "error" not in answers[0], answers[0]
    for i, got in enumerate(answers):
        assert len(got["greedy"]) == NUM_GREEDY
        check(got, reference, asked[i % len(asked)])


@pytest.mark.parametrize("name, spelling", [(name, i) for name, spellings in SPELLINGS.items() for i in range(len(spellings))])
def test_configs_of_other_versions_mean_the_same(tmp_path, name, spelling):
    weights = plain_decoder.FreshWeights(3)
    reference = plain_decoder.decoder(CASES[name], weights)
    ids = prompts(name, 3)[1]
    reference.logits(ids)
    plain_llama.save_checkpoint(tmp_path, weights.tensors, SPELLINGS[name][spelling])
    answers = run_logits.run(tmp_path, [ids])
    assert "error" not in answers[0], answers[0]
    for got in answers:
        check(got, reference, ids)


PICTURES = {"vision_tower.vision_model.post_layernorm.weight": np.ones(8, np.float32), "multi_modal_projector.mm_soft_emb_norm.weight": np.ones(8, np.float32)}


@pytest.mark.parametrize("prefix, of_pictures", [(("model.", "language_model.model."), ""), (("model.", "model.language_model."), "model.")])
def test_the_text_model_of_a_gemma3_that_reads_pictures_is_found(tmp_path, prefix, of_pictures):
    config, weights = CASES["gemma3-scaled"], plain_decoder.FreshWeights(3)
    reference = plain_decoder.decoder(config, weights)
    ids = prompts("gemma3-scaled", 3)[2]
    reference.logits(ids)
    text = {**without(old_gemma3(config), "architectures"), "rms_norm_eps": 1e-5, "final_logit_softcapping": 3.0, "tie_word_embeddings": False}
    whole = {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "eos_token_id": [2, 3], "text_config": text, "vision_config": {"hidden_size": 8}}
    tensors = {name.replace(*prefix, 1): tensor for name, tensor in weights.tensors.items()}
    plain_llama.save_checkpoint(tmp_path, tensors | {of_pictures + name: tensor for name, tensor in PICTURES.items()}, whole)
    answers = run_logits.run(tmp_path, [ids])
    assert "error" not in answers[0], answers[0]
    for got in answers:
        check(got, reference, ids)
    plain_llama.save_checkpoint(tmp_path, tensors | {"other_tower.weight": np.ones(8, np.float32)}, whole)
    assert "extra (1): 'other_tower.weight'" in run_logits.run(tmp_path, [ids])[0]["error"]


@pytest.mark.parametrize("name", ["llama", "llama-linear-rope", "llama-mha", "llama-mqa-bias", "llama-tied", "llama-yarn", "llama3.1-rope", "mistral", "mistral-swa",
                                  "mixtral", "qwen2", "qwen3", "qwen3_moe", "phi3", "phi3-swa", "starcoder2", "gemma2", "gemma3", "gpt2", "gpt_bigcode", "gpt_neox"])
def test_the_plain_decoder_answers_as_transformers(name):
    if not (TINY / name).is_dir():
        pytest.skip("NEREID_TEST_DATA names no folder of tiny checkpoints")
    reference = plain_decoder.decoder(json.loads((TINY / name / "config.json").read_text()), plain_decoder.StoredWeights(TINY / name))
    for row in json.loads((TINY / name / "golden.json").read_text())["prompts"]:
        wanted = reference.logits(row["ids"])
        assert np.abs(wanted[-1, :32] - row["logits_first32"]).max() < 1e-4
        leads = np.diff(np.sort(wanted, -1)[:, -2:])[:, 0]
        for position in np.flatnonzero(leads > 1e-3):
            assert wanted[position].argmax() == row["all_argmax"][position]
