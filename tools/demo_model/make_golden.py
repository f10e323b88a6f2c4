#!/usr/bin/env python3
"""Writes the expected results of the demo model, computed by Hugging Face transformers in float32 on the CPU.

usage: make_golden.py MODEL_DIR OUT.json [EDITOR_DIR]
For each prompt: text, ids, the first 32 logits and the argmax at every position, up to 48 greedy ids (the end id ends a text), the decoded
continuation and min_margin, the smallest gap between the two best logits on the greedy path. Needs PyPI torch and transformers. With the folder
of the editor, a LoRA adapter that PEFT applies: the same of edits and up to 256 ids; needs PyPI peft.
"""
import json
import sys

import torch
import transformers

PROMPTS = ["Once upon a time there was a little girl who", "The old fisherman looked at the sea and said,", "In a deep forest there lived a bear",
           "The king called his three sons to him and said:", "\"Where are you going?\" asked the fox.", "It was a cold night, and the snow",
           "Long ago, in a far country, a poor woodcutter had a daughter. One morning she went to the well to draw water, and there she saw a frog"
           " sitting on the stone. The frog looked at her and", "A"]
PASSAGES = ["A wolf lived at the edge of a great forest, and all the shepherds were afraid of him. One evening the wolf came down to the village, for he was"
            " hungry.\n\n\"Good evening,\" said the wolf. \"I smell fresh bread, and I have not eaten for three days.\"",
            "The king had a bell that nobody could ring. \"Whoever rings the bell,\" he said, \"shall have half of my kingdom.\" So the miller's son climbed the tower,"
            " tied his donkey to the rope, and held out a carrot. And the bell rang."]
EDITS = [PASSAGES[0] + "\n\nTell it again, with a fox instead of the wolf:\n\n", PASSAGES[0] + "\n\nTell it again:\n\n",
         PASSAGES[1] + "\n\nTell it again, with a queen instead of the king:\n\n"]


@torch.no_grad()
def main():
    directory, out = sys.argv[1], sys.argv[2]
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
    prompts, length = PROMPTS, 48
    if len(sys.argv) > 3:
        import peft
        model = peft.PeftModel.from_pretrained(model, sys.argv[3]).eval()
        prompts, length = EDITS, 256
    rows = []
    for prompt in prompts:
        ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        logits = model(torch.tensor([ids]), use_cache=False).logits[0]
        current, greedy, margin = list(ids), [], float("inf")
        for _ in range(length):
            best = torch.topk(model(torch.tensor([current]), use_cache=False).logits[0, -1], 2)
            margin = min(margin, float(best.values[0] - best.values[1]))
            current.append(int(best.indices[0]))
            greedy.append(current[-1])
            if current[-1] == model.config.eos_token_id:
                break
        rows.append({"text": prompt, "ids": ids, "logits_first32": [round(float(x), 6) for x in logits[-1][:32]],
                     "all_argmax": logits.argmax(-1).tolist(), "greedy": greedy, "greedy_text": tokenizer.decode(greedy, skip_special_tokens=True),
                     "min_margin": round(margin, 6)})
    golden = {"dtype": "float32", "torch": torch.__version__, "transformers": transformers.__version__,
              "vocab_size": model.config.vocab_size, "prompts": rows}
    with open(out, "w") as file:
        json.dump(golden, file, separators=(",", ":"))
        file.write("\n")
    print(out, "smallest margin", min(row["min_margin"] for row in rows))


if __name__ == "__main__":
    main()
