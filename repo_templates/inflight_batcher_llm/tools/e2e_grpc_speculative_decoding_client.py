#!/usr/bin/env python3
"""Generates a text with a draft model and a target model: the draft model proposes the next tokens, the target model verifies them. The flags are
those of TensorRT-LLM's client of this name. The text is that of the target model alone. A server does the same for each request if its
`tensorrt_llm_bls` model names a draft model."""
import argparse
import sys

import numpy as np
import tritonclient.grpc as grpcclient
from llm_client import host_and_port, scalars, tensor
from tritonclient.utils import InferenceServerException


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-v", "--verbose", action="store_true", help="print the ids of every step")
    parser.add_argument("--url-target", default="localhost:8001", help="HOST:PORT or a URL of the gRPC port of the target model's server")
    parser.add_argument("--url-draft", help="the same of the draft model's server (default: the target's)")
    parser.add_argument("--preprocessor-model-name", default="preprocessing", help="a model of the draft model's server")
    parser.add_argument("--postprocessor-model-name", default="postprocessing", help="a model of the target model's server")
    parser.add_argument("--draft-tensorrt-llm-model-name", default="tensorrt_llm", help="the model that drafts (default %(default)s)")
    parser.add_argument("--target-tensorrt-llm-model-name", default="tensorrt_llm", help="the model that verifies (default %(default)s)")
    parser.add_argument("-p", "--prompt", required=True, help="the text to continue")
    parser.add_argument("-b", "--beam-width", type=int, default=1, help="1: draft tokens are not used with beam search")
    parser.add_argument("--temperature", type=float, default=1.0, help="temperature of sampling (default %(default)s)")
    parser.add_argument("--repetition-penalty", type=float, help="penalty of repeated tokens")
    parser.add_argument("--presence-penalty", type=float, help="penalty of tokens that have occurred")
    parser.add_argument("--frequency-penalty", type=float, help="penalty of tokens by how often they have occurred")
    parser.add_argument("-o", "--output-len", type=int, default=100, help="the most output tokens (default %(default)s)")
    parser.add_argument("--num-draft-tokens", type=int, default=5, help="the most tokens that the draft model proposes at a time")
    parser.add_argument("--end-id", type=int, help="the id that ends the output")
    parser.add_argument("--pad-id", type=int, help="accepted; nothing is padded")
    parser.add_argument("--request-id", default="1", help="the id of the request (default %(default)s)")
    parser.add_argument("--stop-words", nargs="+", default=[], help="words that end the output")
    parser.add_argument("--bad-words", nargs="+", default=[], help="words that must not be generated")
    parser.add_argument("--return-draft-model-draft-logits", action="store_true", help="with -v, print the logits of the proposed tokens")
    parser.add_argument("--return-target-model-accepted-token-logits", action="store_true", help="with -v, print the logits of the accepted tokens")
    options = parser.parse_args()
    if options.beam_width > 1:
        parser.error(f"--beam-width: expected 1, got {options.beam_width}")
    if options.return_draft_model_draft_logits and options.return_target_model_accepted_token_logits:
        parser.error("--return-draft-model-draft-logits and --return-target-model-accepted-token-logits exclude each other")
    return options


class Step:
    """What one call of a model returned."""

    def __init__(self, result, prompt):
        length = int(result.as_numpy("sequence_length").flatten()[0])
        ids = result.as_numpy("output_ids").flatten()[:length].tolist()
        # The prompt stands before the output unless the model's configuration excludes it.
        self.output = ids[len(prompt):] if ids[:len(prompt)] == prompt else ids
        self.logits = result.as_numpy("generation_logits")


class Generation:
    """The state of one text. The target model decides about every token."""

    def __init__(self, options, draft_client, target_client):
        self._options = options
        self._draft_client = draft_client
        self._target_client = target_client
        texts = {"QUERY": [options.prompt], "BAD_WORDS_DICT": options.bad_words or [""], "STOP_WORDS_DICT": options.stop_words or [""]}
        inputs = [tensor(name, np.array([[text.encode() for text in values]], object)) for name, values in texts.items()]
        numbers = {"REQUEST_OUTPUT_LEN": options.output_len, "END_ID": options.end_id, "PAD_ID": options.pad_id}
        inputs += scalars({name: (value, np.int32) for name, value in numbers.items() if value is not None})
        prepared = draft_client.infer(options.preprocessor_model_name, inputs, request_id=options.request_id)
        self.ids = prepared.as_numpy("INPUT_ID").flatten().tolist()
        self._words = {"bad_words_list": prepared.as_numpy("BAD_WORDS_IDS"), "stop_words_list": prepared.as_numpy("STOP_WORDS_IDS")}
        self._end = int(prepared.as_numpy("OUT_END_ID").flatten()[0])
        self._pad = int(prepared.as_numpy("OUT_PAD_ID").flatten()[0])
        self.num_prompt = len(self.ids)

    def num_left(self):
        return self.num_prompt + self._options.output_len - len(self.ids)

    def _call(self, client, model, num_tokens, draft, wants_logits):
        options = self._options
        values = {"input_lengths": (len(self.ids), np.int32), "request_output_len": (num_tokens, np.int32), "end_id": (self._end, np.int32),
                  "pad_id": (self._pad, np.int32), "beam_width": (options.beam_width, np.int32), "temperature": (options.temperature, np.float32),
                  "repetition_penalty": (options.repetition_penalty, np.float32), "presence_penalty": (options.presence_penalty, np.float32),
                  "frequency_penalty": (options.frequency_penalty, np.float32)}
        if wants_logits:
            values["return_generation_logits"] = (True, bool)
        inputs = [tensor("input_ids", np.array([self.ids], np.int32)), *scalars({k: v for k, v in values.items() if v[0] is not None})]
        inputs += [tensor(name, words.astype(np.int32)) for name, words in self._words.items()]
        if draft:
            inputs.append(tensor("draft_input_ids", np.array([draft], np.int32)))
        return Step(infer(client, model, inputs, options.request_id), self.ids)

    def step(self):
        """Adds what one draft and its verification yield. Returns whether the text may go on."""
        options = self._options
        num_draft = min(options.num_draft_tokens, self.num_left() - 1)
        draft = []
        if num_draft > 0:
            self._show("Draft model input ids:", self.ids)
            proposed = self._call(self._draft_client, options.draft_tensorrt_llm_model_name, num_draft, None, options.return_draft_model_draft_logits)
            draft = proposed.output
            self._show("draft_tokens", draft)
            self._show_logits("draft model draft tokens", proposed)
        self._show("Target model input ids", self.ids)
        verified = self._call(self._target_client, options.target_tensorrt_llm_model_name, len(draft) + 1, draft,
                              options.return_target_model_accepted_token_logits)
        self.ids += verified.output
        self._show("Target model output_ids", self.ids)
        self._show_logits("target model accepted tokens", verified)
        return len(verified.output) == len(draft) + 1 and self.num_left() > 0 and not self._ends()

    def _ends(self):
        """Whether the text ends with the end id or a stop word."""
        flat, offsets = self._words["stop_words_list"][0].tolist()
        bounds = [0] + [offset for offset in offsets if offset > 0]
        words = [flat[begin:end] for begin, end in zip(bounds, bounds[1:])]
        return any(word == self.ids[-len(word):] for word in words + [[self._end]])

    def text(self):
        inputs = [tensor("TOKENS_BATCH", np.array([[self.ids]], np.int32)), tensor("SEQUENCE_LENGTH", np.array([[len(self.ids)]], np.int32))]
        result = self._target_client.infer(self._options.postprocessor_model_name, inputs, request_id=self._options.request_id)
        return result.as_numpy("OUTPUT").flatten()[0].decode(errors="replace")

    def _show(self, title, ids):
        if self._options.verbose:
            print(title)
            print(ids)

    def _show_logits(self, title, step):
        if self._options.verbose and step.logits is not None:
            print(f"{title}' logits: shape: {step.logits.shape}, value: {step.logits}")


def infer(client, model, inputs, request_id):
    """The only response of a model, which may be decoupled."""
    if not client.get_model_config(model).config.model_transaction_policy.decoupled:
        return client.infer(model, inputs, request_id=request_id)
    results = []
    client.start_stream(callback=lambda result, error: results.append(error if error is not None else result))
    client.async_stream_infer(model, inputs, request_id=request_id)
    client.stop_stream()
    if isinstance(results[0], Exception):
        raise results[0]
    return results[0]


def main():
    options = parse()
    target = grpcclient.InferenceServerClient(host_and_port(options.url_target))
    draft = target if options.url_draft in (None, options.url_target) else grpcclient.InferenceServerClient(host_and_port(options.url_draft))
    generation = Generation(options, draft, target)
    while generation.step():
        pass
    print("Final text:\n", generation.text())
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InferenceServerException as failure:
        sys.exit(f"Received an error from server: {failure}")
