"""Asks a model for whole texts: client_http.py --model mistral_7b --prompt "My name is|The sun is" [--url http://localhost:8000]"""
import argparse
import json
import urllib.request

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", required=True)
parser.add_argument("--prompt", required=True, help="several are separated by |")
parser.add_argument("--url", default="http://localhost:8000")
parser.add_argument("--max-tokens", type=int)
parser.add_argument("--timeout", type=float, default=600)
arguments = parser.parse_args()
body = {"prompt": arguments.prompt.split("|")} | ({"max_tokens": arguments.max_tokens} if arguments.max_tokens else {})
request = urllib.request.Request(f"{arguments.url}/v2/models/{arguments.model}/generate", data=json.dumps(body).encode())
print(json.dumps(json.loads(urllib.request.urlopen(request, timeout=arguments.timeout).read())["generation"], indent=1))
