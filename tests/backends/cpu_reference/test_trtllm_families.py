"""TensorRT-LLM checkpoints of every supported family, sharded over ranks by the rules of its converters, compared with the plain decoder on the same
weights.
"""
import json

import numpy as np
import plain_decoder
import plain_llama
import pytest
import run_logits
from test_plain_decoder import CASES, LONG, VOCAB, check, without

ARCHITECTURES = {"mistral": "MistralForCausalLM", "mixtral": "MixtralForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM",
                 "qwen3_moe": "Qwen3MoeForCausalLM", "phi3": "Phi3ForCausalLM", "gemma2": "Gemma2ForCausalLM", "gemma3_text": "Gemma3ForCausalLM",
                 "gpt2": "GPTForCausalLM", "gpt_bigcode": "GPTForCausalLM", "starcoder2": "GPTForCausalLM"}
VARIANTS = {"gpt2": "gpt2", "gpt_bigcode": "starcoder", "starcoder2": "starcoder2"}


class Converter:
    """Creates the tensors of one rank."""

    def __init__(self, config, tensors, rank, tp, ep):
        self.c, self.t, self.kind = config, tensors, config["model_type"]
        self.rank, self.tp, self.ep = rank, tp, ep
        self.is_gpt = "n_embd" in config
        self.hidden = config["n_embd" if self.is_gpt else "hidden_size"]
        self.heads = config["n_head" if self.is_gpt else "num_attention_heads"]
        self.kv_heads = config.get("num_key_value_heads") or (1 if config.get("multi_query") else self.heads)
        self.size = config.get("head_dim") or self.hidden // self.heads
        self.layers = config["n_layer" if self.is_gpt else "num_hidden_layers"]
        self.out = {}

    def part(self, array, axis):
        return np.split(array, self.tp, axis)[self.rank]

    def norm(self, name):
        return self.t[name] + 1 if self.kind.startswith("gemma") else self.t[name]

    def put(self, to, name, axis=None):
        """Adds weight and bias of `name`; a bias is sharded with the rows."""
        weight = self.t[name + ".weight"]
        if self.kind == "gpt2" and weight.ndim == 2:
            weight = weight.T
        self.out[to + ".weight"] = weight if axis is None else self.part(weight, axis)
        if name + ".bias" in self.t:
            bias = self.t[name + ".bias"]
            self.out[to + ".bias"] = self.part(bias, 0) if axis == 0 else bias

    def put_qkv(self, to, layer):
        sizes = np.cumsum([self.heads * self.size, self.kv_heads * self.size])
        for part in ("weight", "bias"):
            if self.is_gpt:
                fused = self.t[f"{layer}attn.c_attn.{part}"]
                q, k, v = np.split(fused.T if self.kind == "gpt2" else fused, sizes)
            elif f"{layer}self_attn.qkv_proj.{part}" in self.t:
                q, k, v = np.split(self.t[f"{layer}self_attn.qkv_proj.{part}"], sizes)
            elif f"{layer}self_attn.q_proj.{part}" in self.t:
                q, k, v = (self.t[f"{layer}self_attn.{n}_proj.{part}"] for n in "qkv")
            else:
                continue
            copies = max(1, self.tp // self.kv_heads)  # ranks with the same heads
            k, v = (np.split(each, self.tp // copies)[self.rank // copies] for each in (k, v))
            self.out[f"{to}attention.qkv.{part}"] = np.concatenate([self.part(q, 0), k, v])

    def put_experts(self, to, p):
        names = ("w3", "w1", "w2") if self.kind == "mixtral" else ("up_proj", "gate_proj", "down_proj")
        count = self.c.get("num_local_experts") or self.c["num_experts"]
        moe_rank, moe_tp = self.rank // self.ep, self.tp // self.ep
        local = range(self.rank % self.ep * (count // self.ep), (self.rank % self.ep + 1) * (count // self.ep))
        cut = lambda e, name, axis: np.split(self.t[f"{p}experts.{e}.{name}.weight"], moe_tp, axis)[moe_rank]
        self.out[to + "router.weight"] = self.t[p + "gate.weight"]
        self.out[to + "fc.weight"] = np.stack([np.concatenate([cut(e, names[0], 0), cut(e, names[1], 0)]) for e in local])
        self.out[to + "proj.weight"] = np.stack([cut(e, names[2], 1) for e in local])

    def put_mlp(self, to, layer):
        if self.kind in ("mixtral", "qwen3_moe"):
            self.put_experts(to, layer + ("block_sparse_moe." if self.kind == "mixtral" else "mlp."))
        elif self.is_gpt or self.kind == "starcoder2":
            self.put(to + "fc", layer + "mlp.c_fc", 0)
            self.put(to + "proj", layer + "mlp.c_proj", 1)
        else:
            if self.kind == "phi3":
                gate, up = np.split(self.t[layer + "mlp.gate_up_proj.weight"], 2)
                self.out[to + "fc.weight"] = np.concatenate([self.part(up, 0), self.part(gate, 0)])
            else:
                self.put(to + "fc", layer + "mlp.gate_proj", 0)
                self.put(to + "gate", layer + "mlp.up_proj", 0)
            self.put(to + "proj", layer + "mlp.down_proj", 1)

    def put_norms(self, to, layer):
        names = {"ln_1": "input_layernorm", "ln_2": "post_layernorm", "post_attention_layernorm": "post_layernorm", "self_attn.q_norm": "attention.q_layernorm",
                 "self_attn.k_norm": "attention.k_layernorm"}
        for name in self.t:
            if name.startswith(layer) and name.rpartition(".")[0].endswith(("norm", "ln_1", "ln_2")):
                base, _, part = name[len(layer):].rpartition(".")
                self.out[f"{to}{names.get(base, base)}.{part}"] = self.norm(name)

    def tensors(self):
        model, layers = ("transformer.", "transformer.h.") if self.is_gpt else ("model.", "model.layers.")
        for i in range(self.layers):
            to, layer = f"transformer.layers.{i}.", f"{layers}{i}."
            self.put_qkv(to, layer)
            self.put(to + "attention.dense", layer + ("attn.c_proj" if self.is_gpt else "self_attn.o_proj"), 1)
            self.put_mlp(to + "mlp.", layer)
            self.put_norms(to, layer)
        for name in ("ln_f.weight", "ln_f.bias") if self.is_gpt else ("norm.weight", "norm.bias"):
            if model + name in self.t:
                self.out["transformer.ln_f." + name.rpartition(".")[2]] = self.norm(model + name)
        table = self.t[model + ("wte.weight" if self.is_gpt else "embed_tokens.weight")]
        self.out["transformer.vocab_embedding.weight"] = table
        if self.is_gpt:
            self.out["transformer.position_embedding.weight"] = self.t["transformer.wpe.weight"]
        self.out["lm_head.weight"] = self.part(self.t.get("lm_head.weight", table), 0)
        return {name: np.ascontiguousarray(value, np.float32) for name, value in self.out.items()}


def trtllm_config(config, tp, ep):
    c = Converter(config, {}, 0, tp, ep)
    rope = dict(config.get("rope_parameters", {}))
    has_experts = c.kind in ("mixtral", "qwen3_moe")
    is_gated = has_experts or c.kind == "phi3"
    out = {"architecture": ARCHITECTURES[c.kind], "dtype": "float32", "vocab_size": VOCAB, "hidden_size": c.hidden, "num_hidden_layers": c.layers,
           "num_attention_heads": c.heads, "num_key_value_heads": c.kv_heads, "head_size": c.size,
           "intermediate_size": config.get("n_inner") or config.get("intermediate_size", 4 * c.hidden),
           "max_position_embeddings": config["n_positions" if c.is_gpt else "max_position_embeddings"],
           "hidden_act": "swiglu" if is_gated else config.get("activation_function") or config.get("hidden_activation") or config["hidden_act"],
           "norm_epsilon": config.get("layer_norm_epsilon") or config.get("norm_epsilon") or config["rms_norm_eps"],
           "mapping": {"world_size": tp, "tp_size": tp, "pp_size": 1, "moe_tp_size": tp // ep, "moe_ep_size": ep},
           "quantization": {"quant_algo": None}, "share_embedding_table": c.kind.startswith("gemma")}
    out |= {key: config[key] for key in ("sliding_window", "query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping") if key in config}
    if c.kind in VARIANTS:
        out |= {"gpt_variant": VARIANTS[c.kind], "bias": True}
    if c.kind == "gemma3_text":
        out |= {"sliding_window_pattern": len(config["layer_types"]), "rope_local_base_freq": rope["sliding_attention"]["rope_theta"]}
        rope = rope["full_attention"]
    if rope:
        out["rotary_base"] = rope["rope_theta"]
    if rope.get("rope_type") == "longrope":
        out |= {"position_embedding_type": "long_rope", "original_max_position_embeddings": LONG,
                "longrope_scaling_short_factors": rope["short_factor"], "longrope_scaling_long_factors": rope["long_factor"]}
    if has_experts:
        out["moe"] = {"num_experts": config.get("num_local_experts") or config["num_experts"], "top_k": config["num_experts_per_tok"], "normalization_mode": 1}
    if c.kind == "qwen3_moe":
        out["moe_intermediate_size"] = config["moe_intermediate_size"]
    return out


FAMILIES = "mistral mixtral qwen2 qwen3 qwen3_moe phi3 gemma2 gemma3 gpt2 gpt_bigcode starcoder2".split()
RANKS = [(name, tp, 1) for name in FAMILIES for tp in (1, 2)] + [("mixtral", 4, 2), ("qwen3_moe", 2, 2)]  # (name, tp, ep)
RANKS += [("mistral-window", 1, 1), ("phi3-longrope", 1, 1)]  # sharded like the base family


def answers_as_what_it_was_made_from(tmp_path, name, tp, ep, change=None, left_out=(), **mapping):
    config, weights = CASES[name] | (change or {}), plain_decoder.FreshWeights(7)
    reference = plain_decoder.decoder(config, weights)
    random = np.random.default_rng(7)
    prompts = [random.integers(3, VOCAB, length).tolist() for length in (5, LONG + 8)]
    reference.logits(prompts[0])  # creates the weights
    stored = without(trtllm_config(config, tp, ep), *left_out)
    stored["mapping"] |= mapping
    (tmp_path / "config.json").write_text(json.dumps(stored))
    for rank in range(tp):
        plain_llama.save(tmp_path / f"rank{rank}.safetensors", Converter(config, weights.tensors, rank, tp, ep).tensors())
    answers = run_logits.run(tmp_path, prompts, num_greedy=3)
    assert "error" not in answers[0], answers[0]
    for i, got in enumerate(answers):
        check(got, reference, prompts[i % len(prompts)])


@pytest.mark.parametrize("name, tp, ep", RANKS)
def test_a_trtllm_checkpoint_answers_as_what_it_was_made_from(tmp_path, name, tp, ep):
    answers_as_what_it_was_made_from(tmp_path, name, tp, ep)


@pytest.mark.parametrize("mapping", [{"moe_ep_size": -1}, {"moe_tp_size": -1}])
def test_either_size_of_the_experts_parallelism_may_be_left_open(tmp_path, mapping):
    answers_as_what_it_was_made_from(tmp_path, "mixtral", 4, 2, **mapping)


def test_heads_that_a_config_leaves_out_follow_from_the_others(tmp_path):
    """This is the rule of TensorRT-LLM. In Hugging Face, a Qwen3 has a head size of 128 and 32 key/value heads by default."""
    change = {"num_key_value_heads": 4, "head_dim": 16}
    answers_as_what_it_was_made_from(tmp_path, "qwen3", 1, 1, change, ("num_key_value_heads", "head_size"))


@pytest.mark.parametrize("change, expected", [
    ({"architecture": "GPTForCausalLM", "gpt_variant": "jais"}, "architecture 'GPTForCausalLM' of 'jais' is not supported"),
    ({"moe": {"num_experts": 4, "top_k": 2, "normalization_mode": 2}}, "moe.normalization_mode is 2"),
    ({"quantization": {"quant_algo": "W4A16_AWQ"}}, "quant_algo 'W4A16_AWQ' of MixtralForCausalLM is not supported"),
    ({"mapping": {"tp_size": 2, "moe_ep_size": 4}}, "tp_size 2 is not a multiple of moe_ep_size 4"),
    ({"mapping": {"tp_size": 4, "moe_tp_size": 3, "moe_ep_size": -1}}, "tp_size 4 is not moe_tp_size 3 x moe_ep_size 1"),
    ({"mapping": {"tp_size": 2, "moe_ep_size": 1e300}}, "'mapping.moe_ep_size' is 1e+300, expected -1 to 64"),
    ({"moe": {"num_experts": 5000, "top_k": 2}}, "'num_experts' is 5000, limit 1024"),
])
def test_what_is_not_known_is_refused_by_name(tmp_path, change, expected):
    (tmp_path / "config.json").write_text(json.dumps(trtllm_config(CASES["mixtral"], 1, 1) | change))
    plain_llama.save(tmp_path / "rank0.safetensors", {"lm_head.weight": np.zeros((VOCAB, 64), np.float32)})
    answers = run_logits.run(tmp_path, [[3]])
    assert expected in answers[0].get("error", "accepted")
