package parallel

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func env(pairs ...string) func(string) string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return m[name] }
}

func TestReadProcess(t *testing.T) {
	t.Parallel()
	master := []string{"MASTER_ADDR", "::1", "MASTER_PORT", "29500"}
	for name, row := range map[string]struct {
		env  []string
		want Process
	}{
		"none": {nil, Process{Size: 1}},
		"torchrun": {append([]string{"RANK", "3", "WORLD_SIZE", "4", "LOCAL_WORLD_SIZE", "2"}, master...),
			Process{Rank: 3, Size: 4, LocalSize: 2, Master: "[::1]:29500"}},
		"agent store": {append([]string{"RANK", "0", "WORLD_SIZE", "2", "TORCHELASTIC_USE_AGENT_STORE", "True"},
			master...), Process{Size: 2, Master: "[::1]:29501"}},
		"slurm": {append([]string{"SLURM_PROCID", "1", "SLURM_NTASKS", "2"}, master...),
			Process{Rank: 1, Size: 2, Master: "[::1]:29500"}},
		"open mpi": {[]string{"OMPI_COMM_WORLD_RANK", "1", "OMPI_COMM_WORLD_SIZE", "2", "OMPI_COMM_WORLD_LOCAL_SIZE",
			"2"}, Process{Rank: 1, Size: 2, LocalSize: 2, MPI: true}},
		"mpich":  {[]string{"PMI_RANK", "1", "PMI_SIZE", "2"}, Process{Rank: 1, Size: 2, MPI: true}},
		"salloc": {[]string{"SLURM_NTASKS", "4"}, Process{Size: 1}}, // not started by srun
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := readProcess(env(row.env...))
			require.NoError(t, err)
			require.Equal(t, row.want, got)
		})
	}
	for want, pairs := range map[string][]string{
		`RANK is "x" and WORLD_SIZE is "2", expected a rank from 0 to the number of ranks minus 1`: {"RANK",
			"x", "WORLD_SIZE", "2"},
		`SLURM_PROCID is "2" and SLURM_NTASKS is "2", expected a rank from 0 to the number of ranks ` +
			`minus 1`: {"SLURM_PROCID", "2", "SLURM_NTASKS", "2"},
		`MASTER_ADDR is "a" and MASTER_PORT is "", expected a host and a port`: {"MASTER_ADDR", "a"},
		`MASTER_ADDR is "" and MASTER_PORT is "1", expected a host and a port`: {"MASTER_PORT", "1"},
		`MASTER_ADDR is "a" and MASTER_PORT is "70000", expected a host and a port`: {"MASTER_ADDR", "a",
			"MASTER_PORT", "70000"},
	} {
		_, err := readProcess(env(pairs...))
		require.EqualError(t, err, want)
	}
}
