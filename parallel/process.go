package parallel

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"strconv"
)

// Process is one of the processes that a launcher, such as torchrun, Slurm or mpirun, has started.
type Process struct {
	Rank, Size int    // this process's rank, 0 to Size-1, and the number of processes
	LocalSize  int    // processes on this machine, including this one; 0 if unknown
	MPI        bool   // mpirun started it
	Master     string // host:port of rank 0; empty if unknown
}

// ThisProcess reads this process's place from the launcher's environment variables. Without a launcher
// it is rank 0 of 1. It returns an error if variables are malformed.
func ThisProcess() (Process, error) { return readProcess(os.Getenv) }

// readProcess returns the process that the variables of torchrun, Open MPI, MPICH or Slurm describe.
func readProcess(getenv func(string) string) (Process, error) {
	p := Process{Size: 1}
	for _, names := range []struct{ rank, size, localSize string }{
		{"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"},
		{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
		{"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"},
		{"SLURM_PROCID", "SLURM_NTASKS", ""},
	} {
		if getenv(names.rank) == "" || getenv(names.size) == "" {
			continue
		}
		var errs [2]error
		p.Rank, errs[0] = strconv.Atoi(getenv(names.rank))
		p.Size, errs[1] = strconv.Atoi(getenv(names.size))
		if errors.Join(errs[:]...) != nil || p.Rank < 0 || p.Rank >= p.Size {
			return p, fmt.Errorf("%s is %q and %s is %q, expected a rank from 0 to the number of ranks minus 1",
				names.rank, getenv(names.rank), names.size, getenv(names.size))
		}
		p.LocalSize, _ = strconv.Atoi(getenv(names.localSize)) // 0 if it is not a number
		p.MPI = names.rank == "OMPI_COMM_WORLD_RANK" || names.rank == "PMI_RANK"
		break
	}
	host, port := getenv("MASTER_ADDR"), getenv("MASTER_PORT")
	if host == "" && port == "" {
		return p, nil
	}
	n, err := strconv.Atoi(port)
	if getenv("TORCHELASTIC_USE_AGENT_STORE") == "True" {
		n++ // torchrun itself listens at MASTER_PORT, so rank 0 takes the next port
	}
	if host == "" || err != nil || n < 1 || n > math.MaxUint16 {
		return p, fmt.Errorf("MASTER_ADDR is %q and MASTER_PORT is %q, expected a host and a port", host, port)
	}
	p.Master = net.JoinHostPort(host, strconv.Itoa(n))
	return p, nil
}
