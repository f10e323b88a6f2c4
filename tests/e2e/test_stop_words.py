"""Stop words end a text independently of token boundaries, and no part of them is visible: in complete answers, streams, and repositories that
pass only ids. The expected texts are those of the demo model without stop words (tests/data/demo_golden.json), cut at the stop word."""
import json
import pathlib
import shutil
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from streams import streamed_text
from tritonclient.utils import InferenceServerException

GOLDEN = json.loads((pathlib.Path(__file__).parents[1] / "data/demo_golden.json").read_text())["prompts"]
TOKENS = 48
# Stop words inside a token, at its start, across several tokens, across a line break, and after characters that could begin them several times.
CASES = [(0, "eautif"), (0, "quite fright"), (0, "What is the ma"), (1, "\n\n"), (1, "?\"\n\n\"It is"), (2, "e bear, who"), (3, " fortune"), (3, "y fo"),
         (4, "castle of the K"), (5, "'\n"), (5, "g to sleep,\" said")]


def cut(text, *words):
    """Returns the text before the word that ends first, and whether there is one."""
    ends = [(text.find(word) + len(word), -len(word)) for word in words if word in text]
    return (text[:min(ends)[0] + min(ends)[1]], "stop") if ends else (text, "length")


def post(server, path, **fields):
    return urllib.request.urlopen(urllib.request.Request(f"{server.url}{path}", data=json.dumps(fields).encode()), timeout=120)


def generate(server, **fields):
    return json.load(post(server, "/v2/models/ensemble/generate", **fields))


def events(server, **fields):
    with post(server, "/v2/models/ensemble/generate_stream", stream=True, **fields) as reply:
        return [json.loads(line[6:]) for line in reply.read().decode().split("\n\n") if line]


@pytest.fixture(scope="module")
def ids_alone(start_server, dist, tmp_path_factory):
    """The demo with the layout of older repositories: the engine gets stop words only as ids."""
    root = tmp_path_factory.mktemp("repository") / "demo"
    shutil.copytree(dist / "share/demo_repository", root)
    for model, line in (("ensemble", 'key: "stop_words" '), ("tensorrt_llm", 'name: "stop_words" ')):
        config = root / model / "config.pbtxt"
        kept = [each for each in config.read_text().splitlines() if line not in each or "STOP_WORDS_DICT" in each]
        config.write_text("\n".join(kept))
    return start_server(root)


@pytest.fixture(params=["demo", "ids_alone"])
def server(request):
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("row, word", CASES)
def test_complete_answer_ends_before_the_stop_word(server, row, word):
    answer = generate(server, text_input=GOLDEN[row]["text"], max_tokens=TOKENS, stop_words=[word])
    assert (answer["text_output"], answer["finish_reason"]) == cut(GOLDEN[row]["greedy_text"], word)
    assert (answer["finish_reason"] == "stop") == (answer["num_output_tokens"] < TOKENS)


@pytest.mark.parametrize("row, word", CASES)
def test_stream_never_shows_text_of_a_stop_word(server, row, word):
    pieces = events(server, text_input=GOLDEN[row]["text"], max_tokens=TOKENS, stop_words=[word])
    wanted, reason = cut(GOLDEN[row]["greedy_text"], word)
    assert "".join(piece["text_output"] for piece in pieces) == wanted
    assert [piece["finish_reason"] for piece in pieces if piece["finish_reason"]] == [reason]


def test_of_several_words_the_one_that_ends_first_counts(server):
    words = ["frightened", "beautiful that", "", "so beautiful th", "child"]
    text = GOLDEN[0]["greedy_text"]
    assert generate(server, text_input=GOLDEN[0]["text"], max_tokens=TOKENS, stop_words=words)["text_output"] == cut(text, *filter(None, words))[0]


def test_possible_start_of_a_stop_word_is_emitted_at_the_end(server):
    text = GOLDEN[0]["greedy_text"]
    word = text[-9:] + " and what never follows"
    fields = dict(text_input=GOLDEN[0]["text"], max_tokens=TOKENS, stop_words=[word])
    assert generate(server, **fields)["text_output"] == text
    pieces = events(server, **fields)
    assert "".join(piece["text_output"] for piece in pieces) == text and pieces[-1]["finish_reason"] == "length"
    assert len(pieces[-1]["text_output"]) >= 9, "the last piece brings what was held back"


def test_a_word_before_the_least_length_does_not_count(server):
    text = GOLDEN[0]["greedy_text"]  # contains "so" at its start and near its end
    fields = dict(text_input=GOLDEN[0]["text"], max_tokens=TOKENS, stop_words=[" so"], min_tokens=10)
    assert generate(server, **fields)["text_output"] == text[:text.index(" so", 10)]


def test_an_empty_word_is_none(server):
    answer = generate(server, text_input=GOLDEN[0]["text"], max_tokens=TOKENS, stop_words=[""])
    assert (answer["text_output"], answer["finish_reason"]) == (GOLDEN[0]["greedy_text"], "length")


def test_a_special_token_is_found_by_its_id(server):
    answer = generate(server, text_input=GOLDEN[0]["text"], max_tokens=TOKENS, stop_words=["<|endoftext|>"])
    assert answer["text_output"] == GOLDEN[0]["greedy_text"]


def test_log_probabilities_are_those_of_the_tokens(server):
    answer = generate(server, text_input=GOLDEN[0]["text"], max_tokens=TOKENS, stop_words=["eautif"], return_log_probs=True)
    assert len(np.ravel(answer["output_log_probs"])) == answer["num_output_tokens"]


def test_a_grpc_stream_ends_before_the_word(demo):
    given = []
    for name, value, datatype in (("text_input", np.array([[GOLDEN[1]["text"].encode()]], dtype=object), "BYTES"),
                                  ("max_tokens", np.array([[TOKENS]], dtype=np.int32), "INT32"), ("stream", np.array([[True]]), "BOOL"),
                                  ("stop_words", np.array([["old fish".encode(), b"never"]], dtype=object), "BYTES")):
        given.append(grpcclient.InferInput(name, value.shape, datatype))
        given[-1].set_data_from_numpy(value)
    assert streamed_text(demo, "ensemble", given) == cut(GOLDEN[1]["greedy_text"], "old fish")[0]


# The engine by itself, without preprocessing and postprocessing.


@pytest.fixture(scope="module")
def engine(start_server, dist, tmp_path_factory):
    root = tmp_path_factory.mktemp("repository")
    model = dist / "share/demo_repository/tensorrt_llm/1"
    bare = tmp_path_factory.mktemp("checkpoint")
    for name in ("config.json", "model.safetensors"):
        shutil.copy(model / name, bare)
    for name, path, more in (("llm", model, {}), ("ids", model, {"stop_words_in_text": "false"}), ("bare", bare, {})):
        parameters = {"gpt_model_path": path, "exclude_input_in_output": "true", "max_beam_width": "2", "max_seq_len": "256", **more}
        lines = [f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}' for key, value in parameters.items()]
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text("\n".join(['backend: "cpu_reference"', *lines]))
    return start_server(root)


def ids_of(server, model, **fields):
    given = {"input_ids": np.array(GOLDEN[0]["ids"], np.int32), "input_lengths": np.array([len(GOLDEN[0]["ids"])], np.int32),
             "request_output_len": np.array([16], np.int32), **fields}
    inputs = []
    for name, value in given.items():
        inputs.append(httpclient.InferInput(name, list(value.shape), {"int32": "INT32", "object": "BYTES"}[str(value.dtype)]))
        inputs[-1].set_data_from_numpy(value)
    with httpclient.InferenceServerClient(f"127.0.0.1:{server.http}", network_timeout=120, connection_timeout=120) as client:
        return client.infer(model, inputs).as_numpy("output_ids")[0].tolist()


# "eautif" as single letters; bytes have their ids in the demo's tokenizer.
VOCABULARY = json.loads((pathlib.Path(__file__).parents[2] / "demo/model/tokenizer.json").read_text())["model"]["vocab"]
LETTERS = np.array([[VOCABULARY[letter] for letter in "eautif"], [6] + [-1] * 5], np.int32)


def words(*texts):
    return np.array([text.encode() for text in texts], dtype=object)


def test_stop_ids_match_as_text_unless_configured_as_ids(engine):
    whole = ids_of(engine, "llm")
    assert whole == GOLDEN[0]["greedy"][:16]
    for model in ("llm", "ids"):
        end = np.array([whole[5:7], [2, -1]], np.int32)
        assert ids_of(engine, model, stop_words_list=end) == whole[:5]
    # A word that no sequence of generated tokens equals, although their text contains it.
    assert ids_of(engine, "ids", stop_words_list=LETTERS) == whole
    assert len(ids_of(engine, "llm", stop_words_list=LETTERS)) < len(whole)


def test_a_beam_search_finds_words_by_their_ids(engine):
    beams = ids_of(engine, "llm", beam_width=np.array([2], np.int32))
    assert len(ids_of(engine, "llm", beam_width=np.array([2], np.int32), stop_words=words("never there at all"))) == len(beams)


def test_words_in_text_need_a_tokenizer(engine):
    with pytest.raises(InferenceServerException, match="input 'stop_words' needs a tokenizer.*holds neither tokenizer.json"):
        ids_of(engine, "bare", stop_words=words("x"))
    whole = ids_of(engine, "bare")
    assert ids_of(engine, "bare", stop_words_list=np.array([whole[5:7], [2, -1]], np.int32)) == whole[:5]


@pytest.mark.parametrize("text, message", [(b"x" * 70000, "70000 bytes in a row, expected at most 65536"), (b"a\xffb", "not UTF-8 at byte 1")])
def test_words_that_are_none_are_refused_by_name(engine, text, message):
    with pytest.raises(InferenceServerException, match=f"input 'stop_words'.*{message}"):
        ids_of(engine, "llm", stop_words=np.array([text], dtype=object))
    assert engine.alive()
