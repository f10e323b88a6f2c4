"""Trees that Medusa heads draft, compared with plain heads on the hidden states of a plain model."""
import json
import subprocess

import numpy
import plain_llama
import plain_medusa
import pytest
import run_logits

HIDDEN, VOCABULARY = plain_llama.CONFIG["hidden_size"], plain_llama.CONFIG["vocab_size"]
MAX_DRAFTS, NUM_RANKS = 12, 10


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    folder = tmp_path_factory.mktemp("target")
    linear, other = plain_llama.random_weights(4)
    plain_llama.save_checkpoint(folder, {**{f"{name}.weight": value for name, value in linear.items()}, **other}, plain_llama.CONFIG)
    return folder, linear, other


def run(target, heads, prompt, num_output=12, choices=()):
    """Returns the proposals, each {"tokens", "drafts", "parents"}, and the answer's ids; or the error."""
    program = run_logits.path().with_name("draft_driver")
    words = [str(program), str(target), f"medusa={heads}", str(num_output), *choices]
    done = subprocess.run(words, input=" ".join(map(str, prompt)), capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 3), done.stdout[-2000:] + done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def write_heads(folder, weights, config, form="list"):
    folder.mkdir(parents=True, exist_ok=True)
    if form == "vllm":
        rename = lambda name: f"lm_heads.{name.split('.')[0]}.weight" if "linear" not in name else "blocks.{0}.layers.{1}.{3}".format(*name.split("."))
        plain_llama.save_checkpoint(folder, {rename(name): value for name, value in weights.items() if not name.endswith("bias")}, config)
    elif form == "model":
        plain_llama.save_checkpoint(folder, {**{f"medusa_head.{name}": value for name, value in weights.items()}, "model.norm.weight": weights["0.0.linear.bias"]}, config)
    else:
        (folder / "config.json").write_text(json.dumps(config))
        plain_llama.save(folder / "medusa_lm_head.safetensors", weights)


def check(proposals, target, row_of, num_heads):
    """`row_of`: the log probabilities of the heads for a hidden state. Every proposal has the likeliest paths."""
    _, linear, other = target
    for proposal in proposals:
        tokens, drafts, parents = proposal["tokens"], proposal["drafts"], proposal["parents"]
        inputs = []
        plain_llama.logits(linear, other, tokens[:-1], inputs=inputs)
        last = inputs[-1][-1]
        normed = last / numpy.sqrt((last * last).mean() + 1e-6) * other["model.norm.weight"].astype(numpy.float64)
        rows, sums, depths = row_of(normed), [], []
        for draft, parent in zip(drafts, parents):
            depths.append(0 if parent < 0 else depths[parent] + 1)
            sums.append((0 if parent < 0 else sums[parent]) + rows[depths[-1], draft])
        assert max(depths) < num_heads and len(set(zip(parents, drafts))) == len(drafts)
        numpy.testing.assert_allclose(sums, plain_medusa.likeliest_paths(rows, NUM_RANKS, len(drafts)), atol=1e-3)


@pytest.mark.parametrize("form, num_heads, num_blocks, config", [
    ("list", 3, 1, {"medusa_num_heads": 3, "medusa_num_layers": 1, "base_model_name_or_path": "x"}),
    ("list", 5, 1, {"medusa_num_heads": 2, "medusa_num_layers": 1}),  # as published: the file has more heads than config.json says
    ("list", 2, 2, {"medusa_num_heads": 2, "medusa_num_layers": 2}),
    ("model", 3, 1, {"medusa_num_heads": 3, "medusa_num_layers": 1, "model_type": "llama", "num_hidden_layers": 2}),
    ("vllm", 3, 1, {"model_type": "medusa", "num_heads": 3, "num_hidden_layers": 1, "hidden_size": HIDDEN, "vocab_size": VOCABULARY})])
def test_drafts_are_the_likeliest_paths_of_the_plain_heads(tmp_path, target, form, num_heads, num_blocks, config):
    weights = plain_medusa.random_heads(8, num_heads, num_blocks, HIDDEN, VOCABULARY)
    write_heads(tmp_path, weights, config, form)
    if form == "vllm":
        weights = {name: value for name, value in weights.items() if not name.endswith("bias")}
    *proposals, answer = run(target[0], tmp_path, numpy.random.default_rng(1).integers(3, 96, 9).tolist())
    assert len(proposals) >= 4 and len(answer["ids"]) == 12
    assert max(len(each["drafts"]) for each in proposals) == 10  # as many as tokens are left behind the first step
    check(proposals, target, lambda normed: plain_medusa.log_probs(weights, normed, num_heads, num_blocks), num_heads)


def test_heads_of_version_2_share_the_projection_of_the_model(tmp_path, target):
    weights = {name: value for name, value in plain_medusa.random_heads(8, 3, 1, HIDDEN, VOCABULARY).items() if "linear" in name}
    write_heads(tmp_path, weights, {"medusa_num_heads": 3, "medusa_num_layers": 1, "version": "2"})
    *proposals, _ = run(target[0], tmp_path, [5, 6, 7])
    shared = target[2]["lm_head.weight"]
    check(proposals, target, lambda normed: plain_medusa.log_probs(weights, normed, 3, 1, shared), 3)


def test_a_token_map_names_the_tokens_of_a_shorter_vocabulary(tmp_path, target):
    weights = plain_medusa.random_heads(8, 2, 1, HIDDEN, 40)
    map_ = numpy.random.default_rng(2).permutation(VOCABULARY)[:40].astype(numpy.int64)
    write_heads(tmp_path, weights, {"model_type": "medusa", "num_heads": 2}, "vllm")
    tensors = {f"blocks.{head}.layers.0.weight": weights[f"{head}.0.linear.weight"] for head in range(2)}
    tensors |= {f"lm_heads.{head}.weight": weights[f"{head}.1.weight"] for head in range(2)} | {"token_map": map_}
    plain_llama.save(tmp_path / "model.safetensors", tensors)
    *proposals, _ = run(target[0], tmp_path, [5, 6, 7])
    plain = {name: value for name, value in weights.items() if not name.endswith("bias")}

    def row_of(normed):
        rows = numpy.full((2, VOCABULARY), -numpy.inf)
        rows[:, map_] = plain_medusa.log_probs(plain, normed, 2, 1)
        return rows

    check(proposals, target, row_of, 2)


def test_an_explicit_tree_has_the_ranks_of_its_paths(tmp_path, target):
    weights = plain_medusa.random_heads(8, 3, 1, HIDDEN, VOCABULARY)
    write_heads(tmp_path, weights, {"medusa_num_heads": 3, "medusa_num_layers": 1})
    paths = [[0], [0, 0], [1], [0, 1], [2], [0, 0, 4]]
    text = ", ".join("{" + ", ".join(map(str, path)) + "}" for path in paths)
    *proposals, _ = run(target[0], tmp_path, [5, 6, 7], choices=[text])
    _, linear, other = target
    for proposal in proposals[:3]:
        inputs = []
        plain_llama.logits(linear, other, proposal["tokens"][:-1], inputs=inputs)
        last = inputs[-1][-1]
        normed = last / numpy.sqrt((last * last).mean() + 1e-6) * other["model.norm.weight"]
        order = numpy.argsort(-plain_medusa.log_probs(weights, normed, 3, 1), -1)
        assert proposal["drafts"] == [order[len(path) - 1, path[-1]] for path in paths]
        assert proposal["parents"] == [paths.index(path[:-1]) if len(path) > 1 else -1 for path in paths]
    [line] = run(target[0], tmp_path, [5, 6], choices=["{0}, {1, 0}"])
    assert "path {1, 0}: its parent {1} is not in the list" in line["error"]
    [line] = run(target[0], tmp_path, [5, 6], choices=["{0},{0,0},{0,0,0},{0,0,0,0}"])
    assert "{0, 0, 0, 0} has 4 ranks, expected at most 3" in line["error"]


def changed(**tensors):
    weights = plain_medusa.random_heads(8, 2, 1, HIDDEN, VOCABULARY)
    for name, value in tensors.items():
        name = name.replace("_", ".")
        if value is None:
            del weights[name]
        else:
            weights[name] = value
    return weights


def not_finite():
    weights = changed()
    weights["1.1.weight"][3, 5] = numpy.nan
    return weights


@pytest.mark.parametrize("weights, config, named", [
    (plain_medusa.random_heads(8, 2, 1, 128, VOCABULARY), {}, ["hidden size 128", "has 64"]),
    (plain_medusa.random_heads(8, 2, 1, HIDDEN, 97), {}, ["97", "96"]),
    (changed(**{"1_0_linear_bias": None}), {}, ["1.0.linear.bias"]), (changed(**{"1_1_weight": None}), {}, ["1.1.weight"]),
    (changed(), {"medusa_num_heads": 3}, ["2.0.linear.weight"]), (changed(), {"medusa_num_layers": 2}, ["0.1.linear.weight"]),
    (changed(**{"1_0_linear_weight": numpy.zeros((HIDDEN, 32), numpy.float32)}), {}, ["1.0.linear.weight", "[64, 64]", "[64, 32]"]),
    ({"x": numpy.zeros(3, numpy.float32)}, {}, ["no heads", "0.0.linear.weight"]), (changed(), {"medusa_num_heads": 99}, ["medusa_num_heads", "99"]),
    (not_finite(), {}, ["'1.1.weight': element 197 is nan", "finite"])])
def test_heads_that_do_not_fit_are_refused(tmp_path, target, weights, config, named):
    write_heads(tmp_path, weights, {"medusa_num_heads": 2, "medusa_num_layers": 1, **config})
    [line] = run(target[0], tmp_path, [5, 6])
    for part in [str(tmp_path), *named]:
        assert part in line["error"], line


def test_pickled_heads_are_refused_with_what_to_do(tmp_path, target):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "medusa_lm_head.pt").write_bytes(b"PK")
    [line] = run(target[0], tmp_path, [5, 6])
    for part in ("medusa_lm_head.pt", "medusa_lm_head.safetensors", "save_file"):
        assert part in line["error"]
