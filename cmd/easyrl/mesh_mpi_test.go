//go:build mpi && unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ranks that mpirun starts end in the weights, moments and metrics of one rank, also after a resume on
// another number of processes.
func TestMPIRanksEndInSameBits(t *testing.T) {
	if _, err := exec.LookPath("mpirun"); err != nil {
		t.Skip(err)
	}
	for i, c := range processCases() {
		dir := meshRun(t, c.model)
		want := trainTiny(t, dir, "one", c.settings...)
		for k, m := range c.meshes {
			out := filepath.Join(dir, m.String())
			for _, steps := range []string{"2", "5"} {
				args := []string{"-n", strconv.Itoa(m.Size()), "--oversubscribe", "--allow-run-as-root", os.Args[0],
					"train", filepath.Join(dir, "run.toml"), "-resume"}
				for _, s := range append([]string{meshWith(m, i+2*k), "run.dir=" + strconv.Quote(out),
					"run.steps=" + steps}, c.settings...) {
					args = append(args, "-set", s)
				}
				cmd := exec.Command("mpirun", args...)
				cmd.Env = append(os.Environ(), "EASYRL_TEST_AS_COMMAND=1")
				said, err := cmd.CombinedOutput()
				require.NoError(t, err, "%s", said)
			}
			requireSameBits(t, want, out, 5)
		}
	}
}
