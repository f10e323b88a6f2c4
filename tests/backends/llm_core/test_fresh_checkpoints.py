"""Fresh random checkpoints of every architecture, created and run by PyPI `transformers` on the CPU, compared with our engine: logits within 1e-4,
the same greedy tokens and the same log probabilities. Cases that require a newer transformers than the installed one are skipped. For the version
of Debian's torch, the goldens of NEREID_TEST_DATA/tiny and test_plain_decoder.py cover them.
"""
import fresh_goldens
import numpy as np
import pytest
import run_logits

CASES = ("llama llama-bias-mqa llama-tied llama-linear llama-dynamic llama-dynamic-beyond llama-llama3 llama-yarn llama-yarn-whole mistral mistral-window mixtral qwen2 qwen2-window qwen3 "
         "qwen3_moe phi3 phi3-longrope phi3-longrope-short starcoder2 gemma2 gemma3 gpt2 gpt_bigcode gpt_bigcode-mha gpt_neox gpt_neox-serial "
         "llama-drawn mistral-drawn mixtral-drawn qwen3-drawn qwen3_moe-drawn gemma2-drawn gemma3-drawn starcoder2-drawn gpt2-drawn gpt_bigcode-drawn gpt_neox-drawn").split() + fresh_goldens.CHANGED
CLEAR = 1e-3  # rounding may decide if the lead is smaller


def check(got, wanted):
    logits = np.array(wanted["logits"])
    assert np.abs(np.array(got["logits"]) - logits).max() < 1e-4 * max(1.0, np.abs(logits).max()), got["isa"]
    for position in np.flatnonzero(np.array(wanted["leads"]) > CLEAR):
        assert got["argmax"][position] == wanted["argmax"][position], (got["isa"], position)
    if wanted["min_lead"] > CLEAR:
        assert got["greedy"] == wanted["greedy"], got["isa"]
        assert np.abs(np.array(got["greedy_log_probs"]) - wanted["greedy_log_probs"]).max() < 1e-3, got["isa"]


@pytest.mark.timeout(900)  # the first test creates all checkpoints
@pytest.mark.parametrize("seed", fresh_goldens.SEEDS)
@pytest.mark.parametrize("name", list(filter(fresh_goldens.can_make, CASES)))
def test_logits_and_greedy_tokens_are_those_of_transformers(name, seed):
    golden = fresh_goldens.golden(name, seed)
    prompts = golden["prompts"]
    num_greedy = len(prompts[0]["greedy"])
    answers = run_logits.run(fresh_goldens.directory(name, seed), [prompt["ids"] for prompt in prompts], golden["max_positions"], num_greedy)
    assert "error" not in answers[0], answers[0]
    for i, got in enumerate(answers):
        check(got, prompts[i % len(prompts)])


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", fresh_goldens.SEEDS)
@pytest.mark.parametrize("name", list(filter(fresh_goldens.can_make, ("llama", "gpt2", "gemma2", "gemma3", "mixtral", "phi3", "starcoder2"))))
def test_embeddings_in_a_prompt_have_the_logits_of_inputs_embeds(name, seed, tmp_path):
    wanted = fresh_goldens.golden(name, seed)["embedded"]
    rows = tmp_path / "rows"
    rows.write_bytes(np.array(wanted["rows"], np.float32).tobytes())
    logits = np.array(wanted["logits"])
    for got in run_logits.run(fresh_goldens.directory(name, seed), [wanted["ids"]], 0, len(wanted["greedy"]), rows):
        assert np.abs(np.array(got["logits"]) - logits).max() < 1e-4 * max(1.0, np.abs(logits).max()), got["isa"]
        if wanted["min_lead"] > CLEAR:
            assert got["greedy"] == wanted["greedy"], got["isa"]
