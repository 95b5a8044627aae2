#!/bin/bash
# Runs one instance as a task of easyrl.sbatch's srun. The instance joins the trainer
# and is restarted if it dies.
set -euo pipefail

# The trainer reaches this node at the source address of the route to the trainer. A
# host name may resolve to loopback on its own machine.
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
	while [[ -n $signalled ]]; do # a signal ended the wait, not the instance
		signalled='' code=0
		wait "$server" || code=$?
	done
	# 0: clean exit; 2: wrong command line.
	if [[ -n $stopped ]] || ((code == 0 || code == 2)); then
		exit "$code"
	fi
	echo "instance.sh: the instance at $listen exited with status $code, try $try of 10" >&2
	sleep 5
done
exit 1
