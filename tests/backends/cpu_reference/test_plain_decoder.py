"""Fresh random checkpoints of every architecture against plain_decoder.py, which is NumPy alone: logits within 1e-4, the same greedy tokens, on
every instruction set of this machine. plain_decoder.py itself is held to what PyPI `transformers` answered (NEREID_TEST_DATA/tiny).

The seeds are fixed; NEREID_FRESH_SEEDS="7 8" takes others."""
import json
import os
import pathlib

import numpy as np
import pytest

import plain_decoder
import plain_llama  # writes safetensors
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
    """With the keys of older configs."""
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
}


def prompts(name, seed):
    """Of longrope, contexts that stay on one side of its border: their greedy tokens are judged at once."""
    random = np.random.default_rng(seed)
    return [random.integers(3, VOCAB, length).tolist() for length in ((7, 20, LONG + 8, LONG + 30) if name == "phi3-longrope" else (1, 7, 60))]


def check(got, reference, ids):
    wanted = reference.logits(ids)
    error = np.abs(np.array(got["logits"]) - wanted[-1]).max()
    assert error < 1e-4 * max(1.0, np.abs(wanted[-1]).max()), got["isa"]
    leads = np.diff(np.sort(wanted, -1)[:, -2:])[:, 0]
    for position in np.flatnonzero(leads > 1e-3):  # else rounding may decide
        assert got["argmax"][position] == wanted[position].argmax(), (got["isa"], position)
    # Greedy tokens, judged at once: each must be the best behind those before it.
    row = reference.logits(ids + got["greedy"])[len(ids) - 1:-1]
    for step, token in enumerate(got["greedy"]):
        assert row[step].max() - row[step][token] < 1e-3, (got["isa"], step)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", CASES)
def test_a_fresh_checkpoint_answers_as_the_plain_decoder(tmp_path, name, seed):
    config, weights = CASES[name], plain_decoder.FreshWeights(seed)
    reference = plain_decoder.decoder(config, weights)
    asked = prompts(name, seed)
    reference.logits(asked[0])  # draws the weights
    plain_llama.save_checkpoint(tmp_path, weights.tensors, config)
    answers = run_logits.run(tmp_path, asked, num_greedy=NUM_GREEDY)
    assert "error" not in answers[0], answers[0]
    for i, got in enumerate(answers):
        assert len(got["greedy"]) == NUM_GREEDY
        check(got, reference, asked[i % len(asked)])


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
