"""Fresh random checkpoints of every architecture, made and answered by PyPI `transformers` on the CPU, against ours: logits within 1e-4, the
same greedy tokens. Skipped where torch or transformers is not installed (tests/requirements.txt leaves them out: torch is large).

As a script: test_fresh_checkpoints.py OUT SEED [NAME ...] writes the checkpoints and what transformers answers.
"""
import json
import pathlib
import sys

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

VOCAB = 256
SEEDS = (1, 2)
LONG = 48  # what longrope and yarn extend from


def config_of(kind, **keys):
    base = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    base |= dict(max_position_embeddings=192, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    return transformers.AutoConfig.for_model(kind, **{**base, **keys})


def rope(kind, **keys):
    return {"rope_type": kind, "rope_theta": 10000.0, **keys}


def gpt(kind, **keys):
    sizes = dict(vocab_size=VOCAB, n_embd=64, n_layer=2, n_head=4, n_positions=192, bos_token_id=1, eos_token_id=2)
    return lambda: transformers.AutoConfig.for_model(kind, **sizes, **keys)


def model(kind, **keys):
    return lambda: config_of(kind, **keys)


LONGROPE = dict(short_factor=[1.0 + i / 8 for i in range(8)], long_factor=[2.0 + i for i in range(8)])
GEMMA = dict(head_dim=32, sliding_window=24, query_pre_attn_scalar=32, tie_word_embeddings=True)
CASES = {
    "llama": model("llama"),
    "llama-bias-mqa": model("llama", attention_bias=True, mlp_bias=True, num_key_value_heads=1),
    "llama-tied": model("llama", tie_word_embeddings=True),
    "llama-linear": model("llama", rope_parameters=rope("linear", factor=3.0)),
    "llama-dynamic": model("llama", rope_parameters=rope("dynamic", factor=2.0)),
    "llama-llama3": model("llama", head_dim=32, rope_parameters=rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)),
    "llama-yarn": model("llama", rope_parameters=rope("yarn", factor=4.0, original_max_position_embeddings=LONG)),
    "mistral": model("mistral", head_dim=32, sliding_window=None),
    "mistral-window": model("mistral", sliding_window=20),
    "mixtral": model("mixtral", num_local_experts=4, num_experts_per_tok=2, sliding_window=None),
    "qwen2": model("qwen2"),
    "qwen2-window": model("qwen2", use_sliding_window=True, sliding_window=20, max_window_layers=1),
    "qwen3": model("qwen3", head_dim=32),
    "qwen3_moe": model("qwen3_moe", head_dim=32, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=48, norm_topk_prob=True),
    "phi3": model("phi3", sliding_window=None),
    "phi3-longrope": model("phi3", sliding_window=None, original_max_position_embeddings=LONG, rope_parameters=rope("longrope", original_max_position_embeddings=LONG, **LONGROPE)),
    "starcoder2": model("starcoder2", sliding_window=None, use_bias=True),
    "gemma2": model("gemma2", **GEMMA),
    "gemma3": model("gemma3_text", **{**GEMMA, "num_hidden_layers": 6}),
    "gpt2": gpt("gpt2"),
    "gpt_bigcode": gpt("gpt_bigcode", multi_query=True),
    "gpt_bigcode-mha": gpt("gpt_bigcode", multi_query=False),
    "gpt_neox": model("gpt_neox"),
    "gpt_neox-serial": model("gpt_neox", use_parallel_residual=False),
}


def prompts(name, seed):
    """Of a longrope, contexts that stay on one side of its border."""
    generator = torch.Generator().manual_seed(seed)
    lengths = (7, 20, LONG + 8, LONG + 40) if name == "phi3-longrope" else (1, 7, 33, 90)
    return [torch.randint(3, VOCAB, (length,), generator=generator).tolist() for length in lengths]


def make(name, seed, folder):
    """Saves the checkpoint; the model in float32."""
    torch.manual_seed(seed)
    torch.set_grad_enabled(False)
    made = transformers.AutoModelForCausalLM.from_config(CASES[name](), attn_implementation="eager").float().eval()
    for parameter_name, parameter in made.named_parameters():
        scale = 0.1 if parameter.dim() < 2 else 1.3 / parameter.shape[-1] ** 0.5
        center = 1.0 if parameter.dim() < 2 and "norm" in parameter_name and not name.startswith("gemma") else 0.0
        parameter.copy_(center + torch.randn(parameter.shape) * scale)
    made.tie_weights()
    made.save_pretrained(folder, safe_serialization=True)
    return made


def answer(made, ids, num_greedy=16):
    """Logits at every position, greedy tokens and the smallest lead of one over its runner-up."""
    logits = made(torch.tensor([ids]), use_cache=False).logits[0].float()
    greedy, lead, current = [], 1e9, list(ids)
    for _ in range(num_greedy):
        best = torch.topk(made(torch.tensor([current]), use_cache=False).logits[0, -1].float(), 2)
        lead = min(lead, float(best.values[0] - best.values[1]))
        greedy.append(int(best.indices[0]))
        current.append(greedy[-1])
    return logits, greedy, lead


def compare(got, logits, greedy, lead):
    expected = logits[-1]
    error = float((torch.tensor(got["logits"]) - expected).abs().max())
    assert error < 1e-4 * max(1.0, float(expected.abs().max())), got["isa"]
    leads = torch.topk(logits, 2).values
    for position, token in enumerate(logits.argmax(-1).tolist()):
        if float(leads[position, 0] - leads[position, 1]) > 1e-3:  # else rounding may decide
            assert got["argmax"][position] == token, (got["isa"], position)
    if lead > 1e-3:
        assert got["greedy"] == greedy, got["isa"]


def run(*arguments, **keys):
    import run_logits  # pytest.ini makes it known; a script does not need it

    return run_logits.run(*arguments, **keys)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", CASES)
def test_logits_and_greedy_tokens_are_those_of_transformers(tmp_path, name, seed):
    made = make(name, seed, tmp_path)
    asked = prompts(name, seed)
    expected = [answer(made, ids) for ids in asked]
    answers = run(tmp_path, asked, num_greedy=16)
    assert "error" not in answers[0], answers[0]
    for i, got in enumerate(answers):
        compare(got, *expected[i % len(asked)])


@pytest.mark.parametrize("seed", SEEDS)
def test_longrope_within_the_original_context_takes_the_short_factors(tmp_path, seed):
    made = make("phi3-longrope", seed, tmp_path)
    ids = prompts("llama", seed)[2][: LONG - 20]
    expected = answer(made, ids)
    for got in run(tmp_path, [ids], max_positions=LONG, num_greedy=16):
        assert "error" not in got, got
        compare(got, *expected)


def main():
    out, seed, names = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] or list(CASES)
    for name in names:
        made = make(name, seed, out / name)
        entries = []
        for ids in prompts(name, seed):
            logits, greedy, lead = answer(made, ids, 32)
            entries.append({"ids": ids, "logits_first32": logits[-1, :32].tolist(), "all_argmax": logits.argmax(-1).tolist(), "greedy": greedy, "min_margin": lead})
        (out / name / "golden.json").write_text(json.dumps({"seed": seed, "vocab_size": VOCAB, "prompts": entries}))
        print(name)


if __name__ == "__main__":
    main()
