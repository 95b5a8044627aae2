#!/bin/bash
# Runs the ranks of one machine in a pod of the Job easyrl-ranks. When a rank fails, all of
# them exit, on every machine, and torchrun with them; this starts them again, and the
# trainer waits for them.
#
#   MACHINES  number of pods
#   MASTER    host name of the first pod
#   TRIES     failures in a row after which this exits with status 1; default 30. A try lasts
#             2 minutes if there is no trainer. A failure after half an hour starts a new row.
set -euo pipefail

tries=${TRIES:-30}
ranks=''
# Status 0 would tell the Job that the ranks of an evicted pod are done.
trap 'trap - TERM INT; kill -TERM "$ranks" 2>/dev/null || true; wait "$ranks" || true; exit 143' TERM INT

for ((failures = 1; failures <= tries; failures++)); do
	began=$SECONDS
	python3 -m torch.distributed.run --nnodes "$MACHINES" --node-rank "$JOB_COMPLETION_INDEX" --nproc-per-node gpu \
		--master-addr "$MASTER" --master-port 29500 -m easyrl_torch &
	ranks=$!
	code=0
	wait "$ranks" || code=$?
	if ((code == 0)); then # the run has ended
		exit 0
	fi
	if ((SECONDS - began >= 1800)); then
		failures=1
	fi
	echo "ranks.sh: torchrun in pod $JOB_COMPLETION_INDEX exited with status $code, failure $failures of $tries in a row" >&2
	sleep 5
done
echo "ranks.sh: giving up; the trainer's log names the rank that fails first" >&2
exit 1
