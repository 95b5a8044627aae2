#!/bin/bash
# Runs the ranks of one node as a task of torch.sbatch's srun. When a rank fails, all of
# them exit and torchrun with them; this starts them again, and the trainer waits for them.
set -euo pipefail

export EASYRL_ADDRESS=$ADDRESS:$PORT PYTHONPATH=$ROOT/torch/worker${PYTHONPATH:+:$PYTHONPATH}

ranks=''
trap 'trap - TERM INT; kill -TERM "$ranks" 2>/dev/null || true; wait "$ranks" || true; exit 0' TERM INT

while true; do
	"$PYTHON" -m torch.distributed.run --nnodes "$TRAIN_NODES" --node-rank "$SLURM_NODEID" --nproc-per-node "$GPUS" \
		--master-addr "$ADDRESS" --master-port $((PORT + 1)) -m easyrl_torch &
	ranks=$!
	code=0
	wait "$ranks" || code=$?
	if ((code == 0)); then # the run has ended
		exit 0
	fi
	echo "ranks.sh: torchrun on node $SLURM_NODEID exited with status $code, starting it again" >&2
	sleep 5
done
