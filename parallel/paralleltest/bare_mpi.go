//go:build mpi

package paralleltest

/*
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

typedef struct { char *from, *to; int n, rank; } bare;

static bare prepare(size_t bytes) {
	bare b = {aligned_alloc(4096, bytes), aligned_alloc(4096, bytes), 0, 0};
	if (b.from) memset(b.from, 1, bytes);
	if (b.to) memset(b.to, 1, bytes);
	MPI_Comm_size(MPI_COMM_WORLD, &b.n);
	MPI_Comm_rank(MPI_COMM_WORLD, &b.rank);
	return b;
}

static int sum(bare b, int length, int times) {
	int rc = MPI_SUCCESS;
	while (times-- && rc == MPI_SUCCESS)
			rc = MPI_Allreduce(MPI_IN_PLACE, b.to, length, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
	return rc;
}

static int gather(bare b, int length, int times) {
	int rc = MPI_SUCCESS;
	while (times-- && rc == MPI_SUCCESS)
			rc = MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, b.to, length / b.n, MPI_FLOAT, MPI_COMM_WORLD);
	return rc;
}

static int ring(bare b, int length, int times) {
	int rc = MPI_SUCCESS;
	while (times-- && rc == MPI_SUCCESS) {
		MPI_Request r[2];
		rc = MPI_Irecv(b.to, length, MPI_FLOAT, (b.rank + b.n - 1) % b.n, 1, MPI_COMM_WORLD, &r[0]);
		if (rc == MPI_SUCCESS) rc = MPI_Isend(b.from, length, MPI_FLOAT, (b.rank + 1) % b.n, 1, MPI_COMM_WORLD, &r[1]);
		if (rc == MPI_SUCCESS) rc = MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
	}
	return rc;
}
*/
import "C"

import "fmt"

// BareMPI returns plain loops that do the same as the case of a name, in the style of the OSU
// micro-benchmarks: calls of MPI with memory of their own and nothing between them. Like ours,
// they are in place. The thread that may call MPI calls both. The memory is not freed.
func BareMPI(name string) (run func(times int) error) {
	wide := 4
	if name == "AllReduceSum" {
		wide = 8
	}
	bare := C.prepare(C.size_t(length * wide))
	return func(times int) error {
		var code C.int
		switch name {
		case "AllReduceSum":
			code = C.sum(bare, length, C.int(times))
		case "AllGather":
			code = C.gather(bare, length, C.int(times))
		case "Send":
			code = C.ring(bare, length, C.int(times))
		default:
			return fmt.Errorf("case is %q, expected one of Cases", name)
		}
		if code == C.MPI_SUCCESS {
			code = C.MPI_Barrier(C.MPI_COMM_WORLD)
		}
		if code != C.MPI_SUCCESS {
			return fmt.Errorf("%s: MPI returns %d, expected %d", name, code, C.MPI_SUCCESS)
		}
		return nil
	}
}
