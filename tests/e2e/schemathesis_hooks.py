"""Makes many requests of schemathesis reach the model: they name one that is served, have a conversation that a template understands, and a few of the
generated fields beside it."""
import os
import random

import schemathesis

choices = random.Random(1)
CONVERSATION = [{"role": "user", "content": "Once upon a time"}]
TEXTS = {"messages": CONVERSATION, "prompt": "Once upon a time", "input": "Once upon a time", "max_tokens": 4}


@schemathesis.hook
def before_call(context, case, kwargs):
    body = case.body
    if not isinstance(body, dict) or "model" not in body or choices.random() < 0.1:
        return
    body["model"] = os.environ["NEREID_MODEL"]
    if choices.random() < 0.2:
        return
    others = [name for name in body if name != "model" and name not in TEXTS]
    for name in choices.sample(others, max(0, len(others) - choices.randrange(4))):
        del body[name]
    body.update({name: value for name, value in TEXTS.items() if name in body})
    if "/tokenize" not in case.path and "prompt" not in body and "input" not in body:
        body["messages"] = CONVERSATION
    for name in ("n", "best_of"):
        if isinstance(body.get(name), int):
            body[name] = min(body[name], 3)
