#!/usr/bin/env bash
# mpirun.sh RANKS REPOSITORY [FLAG...]: starts the server as scripts for TensorRT-LLM do, with one rank for each GPU. Rank 0 serves, the others wait.
set -euo pipefail
if [ $# -lt 2 ]; then
  echo "usage: $0 RANKS REPOSITORY [FLAG...]" >&2
  exit 2
fi
ranks=$1 repository=$2
shift 2
exec mpirun --oversubscribe -n "$ranks" "${TRITONSERVER:-tritonserver}" "--model-repository=$repository" "$@"
