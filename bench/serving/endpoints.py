"""Request bodies for each kind of endpoint, and the number of tokens in each event of its response stream."""
import asyncio
import json
import time
import urllib.parse

from workload import prompt_ids

# Random words for endpoints that accept only text; each is about one token in most vocabularies.
WORDS = ["time", "house", "water", "day", "part", "hand", "world", "life", "night", "story", "light", "stone", "road", "tree", "bird", "sea"]


def text_of(args, index, entry):
    _, prompt, _, text = entry
    return text if text is not None else " ".join(WORDS[i % len(WORDS)] for i in prompt_ids(args, index, prompt))


class KserveTokens:
    """generate_stream with the tensors of the `tensorrt_llm` model."""

    def request(self, args, index, entry):
        ids = prompt_ids(args, index, entry[1])
        fields = {"input_ids": ids, "input_lengths": len(ids), "request_output_len": entry[2], "streaming": True, "end_id": -1}
        if args.top_p:
            fields |= {"runtime_top_p": args.top_p, "temperature": args.temperature, "random_seed": ids[0]}
        return f"/v2/models/{args.model}/generate_stream", fields

    def tokens(self, event, _):
        ids = event.get("output_ids", [])
        return len(ids) if isinstance(ids, list) else 1


class KserveText:
    """generate_stream with text input and output: an ensemble, or such a model of another server."""

    def request(self, args, index, entry):
        fields = {"text_input": text_of(args, index, entry), "max_tokens": entry[2], "stream": True}
        if args.top_p:
            fields |= {"top_p": args.top_p, "temperature": args.temperature, "random_seed": index}
        return f"/v2/models/{args.model}/generate_stream", fields

    def tokens(self, event, seen):
        if "num_output_tokens" in event:
            return int(event["num_output_tokens"]) - seen
        return 1 if event.get("text_output") else 0


class OpenAiCompletions:
    path = "/v1/completions"

    def request(self, args, index, entry):
        fields = {"model": args.model, "max_tokens": entry[2], "stream": True, "stream_options": {"include_usage": True},
                  "temperature": args.temperature if args.top_p else 0}
        if args.top_p:
            fields["top_p"] = args.top_p
        if args.ignore_eos:
            fields["ignore_eos"] = True
        return self.path, fields | self.prompt(args, index, entry)

    def prompt(self, args, index, entry):
        return {"prompt": entry[3] if entry[3] is not None else prompt_ids(args, index, entry[1])}

    def tokens(self, event, seen):
        if event.get("usage"):
            return event["usage"]["completion_tokens"] - seen
        return sum(1 for choice in event.get("choices", ()) if self.text(choice))

    def text(self, choice):
        return choice.get("text")


class OpenAiChat(OpenAiCompletions):
    path = "/v1/chat/completions"

    def prompt(self, args, index, entry):
        return {"messages": [{"role": "user", "content": text_of(args, index, entry)}]}

    def text(self, choice):
        delta = choice.get("delta", {})
        return delta.get("content") or delta.get("reasoning_content")


HTTP = {"kserve": KserveTokens(), "kserve-text": KserveText(), "openai": OpenAiCompletions(), "openai-chat": OpenAiChat()}


async def send(args, index, entry):
    """Sends one request over HTTP. Returns its record: token counts, times of sending, of each token and of the end, and the error."""
    if args.api == "kserve-grpc":
        from grpc_endpoint import send as send_by_grpc
        return await send_by_grpc(args, index, entry)
    endpoint, url = HTTP[args.api], urllib.parse.urlparse(args.url)
    path, fields = endpoint.request(args, index, entry)
    body = json.dumps(fields).encode()
    head = (f"POST {url.path.rstrip('/')}{path} HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n")
    if args.api_key:
        head += f"Authorization: Bearer {args.api_key}\r\n"
    record = {"prompt": entry[1], "output": entry[2], "times": [], "error": None, "sent": time.monotonic()}
    try:
        is_tls = url.scheme == "https"
        reader, writer = await asyncio.open_connection(url.hostname, url.port or (443 if is_tls else 80), limit=1 << 24, ssl=is_tls or None)
        writer.write(f"{head}\r\n".encode() + body)
        status = await reader.readline()
        if b" 200 " not in status:
            raise RuntimeError((status + (await reader.read(2000))).decode(errors="replace"))
        async for line in reader:
            if not line.startswith(b"data:") or line.startswith(b"data: [DONE]"):
                continue
            now = time.monotonic()
            event = json.loads(line[5:])
            if "error" in event:
                raise RuntimeError(str(event["error"]))
            record["times"] += [now] * max(0, endpoint.tokens(event, len(record["times"])))
        writer.close()
    except (OSError, RuntimeError, ValueError, asyncio.LimitOverrunError) as error:
        record["error"] = str(error)[:300]
    record["ended"] = time.monotonic()
    return record
