#!/bin/bash
# Runs the vLLM of one node as a task of torch.sbatch's srun, and starts it again if it
# dies.
set -euo pipefail

export VLLM_SERVER_DEV_MODE=1 PYTHONPATH=$ROOT/deploy/vllm${PYTHONPATH:+:$PYTHONPATH}
read -ra more <<<"${VLLM_ARGS:-}"

server=''
trap 'trap - TERM INT; kill -TERM "$server" 2>/dev/null || true; wait "$server" || true; exit 0' TERM INT

for ((try = 1; try <= 10; try++)); do
	"$VLLM" serve "$MODEL" --host 0.0.0.0 --port $((PORT + 900)) --tensor-parallel-size "$GPUS" \
		--worker-extension-cls easyrl_worker.EasyRL --logprobs-mode processed_logprobs "${more[@]}" &
	server=$!
	code=0
	wait "$server" || code=$?
	echo "vllm.sh: vLLM on node $SLURM_NODEID exited with status $code, try $try of 10" >&2
	sleep 5
done
exit 1
