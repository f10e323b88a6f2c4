"""Longrope by the length of each sequence, compared with a plain model that recomputes every sequence at each token."""
import functools
import math

import numpy
import plain_llama
import run_logits

BORDER = 16  # the trained context
SHORT = [1.0, 1.1, 1.3, 1.2, 1.7, 1.4, 1.9, 2.0]
LONG = [1.5, 2.0, 4.0, 7.0, 9.0, 16.0, 20.0, 31.0]
SCALING = {"type": "longrope", "short_factor": SHORT, "long_factor": LONG, "original_max_position_embeddings": BORDER}
CONFIG = {**plain_llama.CONFIG, "rope_scaling": SCALING}


def expected(linear, other, ids):
    factors = numpy.array(LONG if len(ids) > BORDER else SHORT)
    plain = CONFIG["rope_theta"] ** (-numpy.arange(0, 16, 2) / 16)
    magnitude = math.sqrt(1 + math.log(CONFIG["max_position_embeddings"] / BORDER) / math.log(BORDER))
    return plain_llama.logits(linear, other, ids, CONFIG, (plain / factors, magnitude))


def test_each_sequence_has_the_factors_of_its_length_and_changes_them_as_it_grows(tmp_path):
    linear, other = plain_llama.random_weights(9)
    plain_llama.save_checkpoint(tmp_path, {**{f"{name}.weight": value for name, value in linear.items()}, **other}, CONFIG)
    random = numpy.random.default_rng(9)
    prompts = [random.integers(3, 96, length).tolist() for length in (3, BORDER - 4, BORDER, BORDER + 1, 40)]
    answers = run_logits.run(tmp_path, prompts, num_greedy=8)
    assert answers and "error" not in answers[0], answers[0]
    known = functools.cache(lambda ids: expected(linear, other, list(ids)))  # computed once for all instruction sets
    for i, answer in enumerate(answers):
        ids = tuple(prompts[i % len(prompts)])
        logits = known(ids)
        assert numpy.abs(numpy.array(answer["logits"]) - logits[-1]).max() < 1e-4, answer["isa"]
        run_logits.check_argmax(answer, logits)
        for token in answer["greedy"]:
            last = known(ids)[-1]
            assert last[token] > last.max() - 1e-4, (answer["isa"], len(ids))
            ids += (token,)
