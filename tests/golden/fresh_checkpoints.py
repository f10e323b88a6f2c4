#!/usr/bin/env python3
"""Creates fresh random checkpoints of every architecture in the installed PyPI `transformers`, with its outputs in float32 on the CPU.

usage: fresh_checkpoints.py OUT SEED[,SEED ...] [NAME ...]

OUT/SEED/NAME becomes a Hugging Face directory with golden.json. For each prompt it contains the logits of the last position, the most likely token of
every position and its lead, and greedy tokens with their log probabilities. For one prompt it also contains the beams of `generate`. OUT/made.json
lists the created cases, and for the others the reason; tests/backends/llm_core/test_fresh_checkpoints.py skips those.
"""
import copy
import json
import pathlib
import random
import sys

import safetensors.torch
import torch
import transformers
import transformers.generation.utils

# `generate` calls this, and Debian's torch cannot import the module that it needs.
transformers.generation.utils.is_fsdp_managed_module = lambda module: False

VOCAB = 256
NUM_GREEDY = 16
LONG = 48  # the context before extension by longrope, yarn and dynamic
MAX_POSITIONS = {"phi3-longrope-short": LONG, "llama-dynamic-beyond": 4 * LONG}
NUM_BEAMS = 3
BEAM_CASES = ("llama", "gpt2")
EMBEDS_CASES = ("llama", "gpt2", "gemma2", "gemma3", "mixtral", "phi3", "starcoder2")
NUM_ROWS = 5
END_IDS = list(range(2, 26))  # many ids, so that some occur
IS_OLD = int(transformers.__version__.split(".")[0]) < 5  # writes rope_theta and rope_scaling, while newer versions write rope_parameters


def config_of(kind, **keys):
    base = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    base |= dict(max_position_embeddings=192, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    parameters = keys.pop("rope_parameters", None)
    if parameters is not None and IS_OLD:
        parameters = dict(parameters)
        keys["rope_theta"] = parameters.pop("rope_theta")
        if kind == "phi3":  # it requires exactly these three keys
            parameters = {"type": parameters["rope_type"], **{key: parameters[key] for key in ("short_factor", "long_factor")}}
        keys["rope_scaling"] = parameters
    elif parameters is not None:
        keys["rope_parameters"] = parameters
    return transformers.AutoConfig.for_model(kind, **{**base, **keys})


def rope(kind, **keys):
    return {"rope_type": kind, "rope_theta": 10000.0, **keys}


DRAW = random.Random()  # seeded by make(), so that values depend on the case and its seed only


def drawn(make, kind, **choices):
    """A random choice of the variations that real checkpoints of this kind have."""
    return lambda: make(kind, **{key: DRAW.choice(values) for key, values in choices.items()})()


def gpt(kind, **keys):
    sizes = dict(vocab_size=VOCAB, n_embd=64, n_layer=2, n_head=4, n_positions=192, bos_token_id=1, eos_token_id=2)
    return lambda: transformers.AutoConfig.for_model(kind, **{**sizes, **keys})


def model(kind, **keys):
    return lambda: config_of(kind, **keys)


LONGROPE = dict(short_factor=[1.0 + i / 8 for i in range(8)], long_factor=[2.0 + i for i in range(8)])
LONG_PHI3 = model("phi3", sliding_window=None, original_max_position_embeddings=LONG,
                  rope_parameters=rope("longrope", original_max_position_embeddings=LONG, **LONGROPE))
GEMMA = dict(head_dim=32, sliding_window=24, query_pre_attn_scalar=32, tie_word_embeddings=True)
BOTH = [True, False]
GATES = ["silu", "gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "quick_gelu"]
SIZES = dict(head_dim=[8, 24, 32], num_key_value_heads=[1, 2, 4], intermediate_size=[40, 96], num_hidden_layers=[1, 3], rms_norm_eps=[1e-6, 1e-3], tie_word_embeddings=BOTH)
ROPES = [rope("default"), rope("default", rope_theta=1e6), rope("linear", factor=2.5), rope("dynamic", factor=2.0),
         rope("llama3", factor=32.0, low_freq_factor=2.0, high_freq_factor=8.0, original_max_position_embeddings=32)]
EXPERTS = dict(num_experts_per_tok=[1, 2], num_key_value_heads=[1, 2, 4], num_hidden_layers=[2, 4])
CASES = {
    "llama": model("llama"),
    "llama-bias-mqa": model("llama", attention_bias=True, mlp_bias=True, num_key_value_heads=1),
    "llama-tied": model("llama", tie_word_embeddings=True),
    "llama-linear": model("llama", rope_parameters=rope("linear", factor=3.0)),
    "llama-dynamic": model("llama", rope_parameters=rope("dynamic", factor=2.0)),
    "llama-dynamic-beyond": model("llama", max_position_embeddings=LONG, rope_parameters=rope("dynamic", factor=4.0)),
    "llama-llama3": model("llama", head_dim=32, rope_parameters=rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)),
    "llama-yarn-whole": model("llama", rope_parameters=rope("yarn", factor=4.0)),
    "llama-yarn": model("llama", rope_parameters=rope("yarn", factor=4.0, original_max_position_embeddings=LONG)),
    "mistral": model("mistral", head_dim=32, sliding_window=None),
    "mistral-window": model("mistral", sliding_window=20),
    "mixtral": model("mixtral", num_local_experts=4, num_experts_per_tok=2, sliding_window=None),
    "qwen2": model("qwen2"),
    "qwen2-window": model("qwen2", use_sliding_window=True, sliding_window=20, max_window_layers=1),
    "qwen3": model("qwen3", head_dim=32),
    "qwen3_moe": model("qwen3_moe", head_dim=32, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=48, norm_topk_prob=True),
    "phi3": model("phi3", sliding_window=None),
    "phi3-longrope": LONG_PHI3,
    "phi3-longrope-short": LONG_PHI3,  # requests at most the context before the extension
    "starcoder2": model("starcoder2", sliding_window=None, use_bias=True),
    "gemma2": model("gemma2", **GEMMA),
    "gemma3": model("gemma3_text", **{**GEMMA, "num_hidden_layers": 6}),
    "gpt2": gpt("gpt2"),
    "gpt_bigcode": gpt("gpt_bigcode", multi_query=True),
    "gpt_bigcode-mha": gpt("gpt_bigcode", multi_query=False),
    "gpt_neox": model("gpt_neox"),
    "gpt_neox-serial": model("gpt_neox", use_parallel_residual=False),
    "llama-drawn": drawn(model, "llama", **SIZES, hidden_act=GATES, attention_bias=BOTH, mlp_bias=BOTH, rope_parameters=ROPES),
    "mistral-drawn": drawn(model, "mistral", **SIZES, hidden_act=GATES, sliding_window=[None, 5, 40]),
    "mixtral-drawn": drawn(model, "mixtral", **EXPERTS, num_local_experts=[2, 8], hidden_act=GATES, sliding_window=[None, 5]),
    "qwen3-drawn": drawn(model, "qwen3", **SIZES, hidden_act=GATES, attention_bias=BOTH, sliding_window=[5, 40], use_sliding_window=BOTH, max_window_layers=[0, 1]),
    "qwen3_moe-drawn": drawn(model, "qwen3_moe", **EXPERTS, head_dim=[8, 24], num_experts=[2, 8], moe_intermediate_size=[24], norm_topk_prob=BOTH, decoder_sparse_step=[1, 2],
                             mlp_only_layers=[[], [0], [1]]),
    "gemma2-drawn": drawn(model, "gemma2", **{**SIZES, "num_hidden_layers": [2, 3]}, query_pre_attn_scalar=[24, 168], sliding_window=[5, 40],
                          attn_logit_softcapping=[5.0, None], final_logit_softcapping=[3.0, None], attention_bias=BOTH),
    "gemma3-drawn": drawn(model, "gemma3_text", **{**SIZES, "num_hidden_layers": [4, 7]}, query_pre_attn_scalar=[24, 168], sliding_window=[5, 40],
                          sliding_window_pattern=[2, 3]),
    "starcoder2-drawn": drawn(model, "starcoder2", hidden_act=GATES, use_bias=BOTH, norm_epsilon=[1e-5, 1e-3], sliding_window=[None, 5], tie_word_embeddings=BOTH),
    "gpt2-drawn": drawn(gpt, "gpt2", n_inner=[None, 40], activation_function=GATES, scale_attn_weights=BOTH, scale_attn_by_inverse_layer_idx=BOTH,
                        tie_word_embeddings=BOTH),
    "gpt_bigcode-drawn": drawn(gpt, "gpt_bigcode", n_inner=[None, 40], activation_function=GATES, multi_query=BOTH, scale_attn_weights=BOTH),
    "gpt_neox-drawn": drawn(model, "gpt_neox", num_key_value_heads=[4], hidden_act=GATES, use_parallel_residual=BOTH, attention_bias=BOTH, layer_norm_eps=[1e-5, 1e-3]),
}


def respelt(change):
    """Applies `change` to config.json."""

    def rewrite(folder):
        path = folder / "config.json"
        config = json.loads(path.read_text())
        change(config)
        path.write_text(json.dumps(config))

    return rewrite


def with_other_head(folder):
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].flip(0).contiguous()
    safetensors.torch.save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def with_head_alone(folder):
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors.pop("model.embed_tokens.weight")
    safetensors.torch.save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def in_both_spellings(config):
    config["rope_theta"] = 500.0
    config["rope_scaling"] = {"type": "linear", "factor": 3.0}


def with_layer_types(config):
    config["layer_types"] = ["full_attention", "sliding_attention"]


def with_names_of_others(config):
    for own, usual in {"n_embd": "hidden_size", "n_head": "num_attention_heads", "n_layer": "num_hidden_layers", "n_positions": "max_position_embeddings"}.items():
        config[usual] = config.pop(own)


def with_older_name(config):
    parameters = config["rope_parameters"]
    parameters |= {"type": "su", "original_max_position_embeddings": 7}
    del parameters["rope_type"]


# Checkpoints changed after saving, as other tools write them, and then read by `transformers`.
CHANGED = {
    "llama-untied": (CASES["llama-tied"], with_other_head),
    "llama-head-alone": (CASES["llama-tied"], with_head_alone),
    "llama-both-spellings": (CASES["llama-llama3"], respelt(in_both_spellings)),
    "llama-stray-part": (CASES["llama"], respelt(lambda config: config.update(partial_rotary_factor=0.5, rotary_pct=0.5))),
    "mistral-layer-types": (CASES["mistral-window"], respelt(with_layer_types)),
    "mixtral-layer-types": (model("mixtral", num_local_experts=4, sliding_window=20), respelt(with_layer_types)),
    "phi3-older-name": (LONG_PHI3, respelt(with_older_name)),
    "gemma3-both-spellings": (CASES["gemma3"], respelt(in_both_spellings)),
    "gpt2-other-names": (CASES["gpt2"], respelt(with_names_of_others)),
    "gpt_neox-odd": (model("gpt_neox", hidden_size=80, rope_parameters=rope("linear", factor=2.0, partial_rotary_factor=0.25)), lambda folder: None),
}
CASES |= {name: make for name, (make, change) in CHANGED.items()}


# Cases in which older versions differ from newer ones and from the model's own code, so that a comparison is not possible.
ONLY_NEWER = {
    "llama-yarn": "takes max_position_embeddings for the length that yarn extends",
    "qwen2-window": "gives every layer the window, whatever max_window_layers says",
} | {name: "reads it otherwise" for name in CHANGED}


def prompts(name, seed):
    """For longrope, prompts whose contexts stay on one side of the trained context. For a dynamic rope, also prompts that are or grow longer than it.
    """
    generator = torch.Generator().manual_seed(seed)
    lengths = {"phi3-longrope": (7, 20, LONG + 8, LONG + 40), "phi3-older-name": (20, LONG + 8), "phi3-longrope-short": (LONG - 20,),
               "llama-dynamic-beyond": (7, LONG - 4, LONG, 90)}.get(name, (1, 7, 33, 90))
    return [torch.randint(3, VOCAB, (length,), generator=generator).tolist() for length in lengths]


def make(name, seed, folder):
    """Saves the checkpoint and returns the model in float32."""
    torch.manual_seed(seed)
    DRAW.seed(f"{name} {seed}")
    torch.set_grad_enabled(False)
    made = transformers.AutoModelForCausalLM.from_config(CASES[name](), attn_implementation="eager").float().eval()
    for parameter_name, parameter in made.named_parameters():
        scale = 0.1 if parameter.dim() < 2 else 1.3 / parameter.shape[-1] ** 0.5
        center = 1.0 if parameter.dim() < 2 and "norm" in parameter_name and not name.startswith("gemma") else 0.0
        parameter.copy_(center + torch.randn(parameter.shape) * scale)
    made.tie_weights()
    made.save_pretrained(folder, safe_serialization=True)
    if name not in CHANGED:
        return made
    CHANGED[name][1](folder)
    return transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()


def last_rows(made, ids):
    """The logits after `ids`, and after each token that is appended to them."""
    while True:
        yield made(torch.tensor([ids]), use_cache=False).logits[0, -1].float()


def last_rows_of_cached(made, ids):
    """The same with cached keys that stay unchanged, as in `generate`."""
    num_cached, cache = 0, None
    while True:
        out = made(torch.tensor([ids[num_cached:]]), past_key_values=cache, use_cache=True)
        num_cached, cache = len(ids), out.past_key_values
        yield out.logits[0, -1].float()


def answer(made, ids, name):
    is_dynamic = name == "llama-dynamic-beyond"
    made = copy.deepcopy(made) if is_dynamic else made  # its rope remembers the longest sequence
    rows = made(torch.tensor([ids]), use_cache=False).logits[0].float()
    best = torch.topk(rows, 2)
    greedy, log_probs, lead, current = [], [], 1e9, list(ids)
    for _, last in zip(range(NUM_GREEDY), last_rows_of_cached(made, current) if is_dynamic else last_rows(made, current)):
        top = torch.topk(last, 2)
        lead = min(lead, float(top.values[0] - top.values[1]))
        greedy.append(int(top.indices[0]))
        log_probs.append(float(torch.log_softmax(last, -1)[greedy[-1]]))
        current.append(greedy[-1])
    return {"ids": ids, "logits": rows[-1].tolist(), "argmax": best.indices[:, 0].tolist(), "leads": (best.values[:, 0] - best.values[:, 1]).tolist(),
            "greedy": greedy, "greedy_log_probs": log_probs, "min_lead": lead}


def search(made, ids):
    """The result of beam search with end ids that occur: for each output the tokens without the end id, and the sum of its log probabilities."""
    made.generation_config.eos_token_id = END_IDS
    answers = []
    for length_penalty, early_stopping in ((0.0, True), (1.0, True), (1.0, False), (2.0, False)):
        given = torch.tensor([ids])
        found = made.generate(given, attention_mask=torch.ones_like(given), num_beams=NUM_BEAMS, num_return_sequences=NUM_BEAMS, max_new_tokens=NUM_GREEDY,
                              do_sample=False, length_penalty=length_penalty, early_stopping=early_stopping, pad_token_id=0,
                              output_scores=True, return_dict_in_generate=True)
        outputs = []
        for row, score in zip(found.sequences[:, len(ids):].tolist(), found.sequences_scores.tolist()):
            ends = [i for i, token in enumerate(row) if token in END_IDS]
            length = ends[0] + 1 if ends else len(row)  # the end id counts
            outputs.append({"ids": row[: ends[0]] if ends else row, "score": score, "cum_log_prob": score * length**length_penalty})
        answers.append({"length_penalty": length_penalty, "early_stopping": early_stopping, "outputs": outputs})
    return answers


def ruled(made, ids, plain):
    """Greedy tokens under sampling rules that change the choice; `plain`: the tokens without rules."""
    made.generation_config.eos_token_id = END_IDS
    plain = [token for token in plain if token not in END_IDS]  # `transformers` ignores a bad word that is an end id
    answers = []
    for rules in ({}, {"min_new_tokens": 12}, {"repetition_penalty": 1.5}, {"no_repeat_ngram_size": 2}, {"bad_words_ids": [plain[:1], plain[1:3], plain[2:5]]},
                  {"repetition_penalty": 0.7, "no_repeat_ngram_size": 3, "min_new_tokens": 16, "bad_words_ids": [plain[4:5]]}):
        given = torch.tensor([ids])
        found = made.generate(given, attention_mask=torch.ones_like(given), max_new_tokens=NUM_GREEDY, do_sample=False, pad_token_id=0, output_scores=True,
                              return_dict_in_generate=True, **rules)
        best = torch.topk(torch.cat(found.scores), 2).values
        output = found.sequences[0, len(ids):].tolist()
        answers.append({**rules, "ids": [token for token in output if token not in END_IDS] if output[-1] in END_IDS else output,
                        "min_lead": float((best[:, 0] - best[:, 1]).min())})
    return answers


def embedded(made, ids, seed):
    """The logits and greedy tokens of a prompt whose ids of at least VOCAB are random embeddings."""
    generator = torch.Generator().manual_seed(seed)
    table = made.get_input_embeddings()
    rows = torch.randn((NUM_ROWS, table.weight.shape[1]), generator=generator)
    ids = [VOCAB + i % NUM_ROWS if i < NUM_ROWS or i % 4 == 1 else token for i, token in enumerate(ids)]
    embeds = torch.stack([rows[token - VOCAB] if token >= VOCAB else table(torch.tensor(token)) for token in ids])
    greedy, lead, first = [], 1e9, None
    for _ in range(NUM_GREEDY):
        last = made(inputs_embeds=embeds[None], use_cache=False).logits[0, -1].float()
        first = last if first is None else first
        top = torch.topk(last, 2)
        lead = min(lead, float(top.values[0] - top.values[1]))
        greedy.append(int(top.indices[0]))
        embeds = torch.cat([embeds, table(top.indices[:1])])
    return {"ids": ids, "rows": rows.tolist(), "logits": first.tolist(), "greedy": greedy, "min_lead": lead}


def reason_against(name):
    """Why this version cannot create the case; empty if it can."""
    if IS_OLD and name in ONLY_NEWER:
        return ONLY_NEWER[name]
    try:
        CASES[name]()
    except (ValueError, KeyError, AttributeError) as error:
        return str(error).splitlines()[0][:100]
    return ""


def main():
    out, seeds, names = pathlib.Path(sys.argv[1]), sys.argv[2].split(","), sys.argv[3:] or list(CASES)
    torch.set_num_threads(1)
    made = {name: reason_against(name) for name in names}
    for seed in seeds:
        for name in names:
            if made[name]:
                continue
            folder = out / seed / name
            model = make(name, int(seed), folder)
            asked = prompts(name, int(seed))
            golden = {"vocab_size": VOCAB, "max_positions": MAX_POSITIONS.get(name, 0), "prompts": [answer(model, ids, name) for ids in asked]}
            if name in BEAM_CASES:
                golden |= {"beam_prompt": asked[1], "beam_width": NUM_BEAMS, "beams": search(model, asked[1]),
                           "ruled": ruled(model, asked[1], golden["prompts"][1]["greedy"])}
                (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": END_IDS}))
            if name in EMBEDS_CASES:
                golden["embedded"] = embedded(model, asked[2], int(seed))
            (folder / "golden.json").write_text(json.dumps(golden))
    (out / "made.json").write_text(json.dumps({"transformers": transformers.__version__, "torch": torch.__version__, "not_made": made}))


if __name__ == "__main__":
    main()
