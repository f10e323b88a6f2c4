#!/usr/bin/env python3
"""Writes a model repository under the name and with the flags of the script of Qualcomm's LLM samples:

  generate_llm_model_repo.py --model_name mistral_7b --model_type kv_cache [--decoupled] [--hf_model_name DIR] [--compile_config_path FILE]

It runs `nereid-repo new qaic-style`. A configuration for 6-bit weights (mxfp6_matmul) runs at the checkpoint's precision, which is said."""
import os
import pathlib
import sys

program = pathlib.Path(__file__).resolve().parents[3] / "bin/nereid-repo"
command = str(program) if program.is_file() else "nereid-repo"
if {"--help", "-h"} & set(sys.argv[1:]):
    print(__doc__)
    sys.exit(0)
try:
    os.execvp(command, [command, "new", "qaic-style", "--checkpoint_precision", *sys.argv[1:]])
except OSError as error:
    sys.exit(f"{command}: {error.strerror}; expected it in {program.parent} or in PATH")
