#!/bin/bash
# One instance of easyrl.sbatch's, a task of its srun: joins the trainer, and is
# started again when it dies.
set -euo pipefail

# The address by which this node reaches the trainer is where the trainer
# reaches this node: names may mean loopback on their own machine.
route=$(ip -o route get "$ADDRESS")
if [[ ! $route =~ src\ ([^ ]+) ]]; then
	echo "instance.sh: no route to the trainer at $ADDRESS: $route" >&2
	exit 1
fi
listen=${BASH_REMATCH[1]}:$((PORT + 1000 + SLURM_LOCALID))

server='' stopped='' signalled=''
# shellcheck disable=SC2329 # a trap calls it
stop() {
	stopped=1 signalled=1
	if [[ -n $server ]]; then kill -TERM "$server" 2>/dev/null || true; fi
}
trap stop TERM INT

for ((try = 1; try <= 10; try++)); do
	"$EASYRL" serve -model "$MODEL" -listen "$listen" -threads "$THREADS" \
		-join "http://$ADDRESS:$PORT" -token-file "$TOKEN_FILE" &
	server=$!
	code=0
	wait "$server" || code=$?
	while [[ -n $signalled ]]; do # which ended the wait and not the instance
		signalled='' code=0
		wait "$server" || code=$?
	done
	# 0: ended in order; 2: the command line is wrong.
	if [[ -n $stopped ]] || ((code == 0 || code == 2)); then
		exit "$code"
	fi
	echo "instance.sh: the instance at $listen ended with status $code, try $try of 10" >&2
	sleep 5
done
exit 1
