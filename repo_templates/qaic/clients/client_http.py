"""Requests whole texts from a model: client_http.py --model mistral_7b --prompt "My name is|The sun is" [--url localhost:8000]
or, with --stream, the tokens of one text as they are generated: client_http.py --model mistral_decoupled --prompt "My name is" --stream"""
import argparse
import json
import sys
import urllib.error
import urllib.request

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--model", required=True)
parser.add_argument("--prompt", required=True, help="several are separated by |")
parser.add_argument("--stream", action="store_true", help="for a model made with --decoupled")
parser.add_argument("--url", default="http://localhost:8000", help="a URL, or host:port")
parser.add_argument("--max-tokens", type=int)
parser.add_argument("--timeout", type=float, default=600)
arguments = parser.parse_args()
server = (arguments.url if "://" in arguments.url else f"http://{arguments.url}").rstrip("/")
body = {"prompt": arguments.prompt.split("|")} | ({"max_tokens": arguments.max_tokens} if arguments.max_tokens else {})
endpoint = "generate_stream" if arguments.stream else "generate"
request = urllib.request.Request(f"{server}/v2/models/{arguments.model}/{endpoint}", data=json.dumps(body).encode())
try:
    with urllib.request.urlopen(request, timeout=arguments.timeout) as answer:
        if arguments.stream:
            for line in answer:
                if line.startswith(b"data: "):
                    print(json.loads(line[6:])["generation"], end="", flush=True)
            print()
        else:
            print(json.dumps(json.loads(answer.read())["generation"], indent=1))
except urllib.error.HTTPError as error:
    sys.exit(f"{arguments.model}: {error.code} {error.read().decode()}")
