"""A dynamic rope beyond its trained context, compared with plain NumPy. As in `generate` of transformers, a prompt uses the frequencies of its whole
length, and each later token those of the sequence that ends with it. Cached keys stay unchanged.
"""
import functools

import numpy
import plain_llama
import pytest
import run_logits

TRAINED = 64
FACTOR = 3.0
CONFIG = {**plain_llama.CONFIG, "rope_scaling": {"type": "dynamic", "factor": FACTOR}}


def frequencies(length):
    stretch = FACTOR * max(length, TRAINED) / TRAINED - (FACTOR - 1)
    return (CONFIG["rope_theta"] * stretch ** (16 / 14)) ** (-numpy.arange(0, 16, 2) / 16)


def expected(linear, other, ids, num_prompt):
    angles = numpy.stack([position * frequencies(max(num_prompt, position + 1)) for position in range(len(ids))])
    return plain_llama.logits(linear, other, ids, CONFIG, angles=angles)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dynamic")
    linear, other = plain_llama.random_weights(11)
    plain_llama.save_checkpoint(folder, {**{f"{name}.weight": value for name, value in linear.items()}, **other}, CONFIG)
    return folder, linear, other


def test_prompts_and_tokens_behind_them_turn_by_their_length(model):
    folder, linear, other = model
    random = numpy.random.default_rng(11)
    prompts = [random.integers(3, 96, length).tolist() for length in (5, TRAINED - 4, TRAINED, TRAINED + 1, 90)]
    answers = run_logits.run(folder, prompts, max_positions=2 * TRAINED, num_greedy=8)
    assert answers and "error" not in answers[0], answers[0]
    known = functools.cache(lambda ids, num_prompt: expected(linear, other, list(ids), num_prompt))  # computed once for all instruction sets
    for i, answer in enumerate(answers):
        prompt = prompts[i % len(prompts)]
        logits = known(tuple(prompt), len(prompt))
        assert numpy.abs(numpy.array(answer["logits"]) - logits[-1]).max() < 1e-4, answer["isa"]
        run_logits.check_argmax(answer, logits)
        rows = known((*prompt, *answer["greedy"]), len(prompt))[len(prompt) - 1:]
        for row, token in zip(rows, answer["greedy"]):
            assert row[token] > row.max() - 1e-4, (answer["isa"], len(prompt))
