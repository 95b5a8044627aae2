// Package mpi connects the ranks that mpirun or srun started, over MPI.
//
// It is built with the tag mpi, cgo and CC=mpicc; "make mpi" does so. One goroutine makes all
// calls of MPI and polls the messages under way together with their deadlines.
//
// Beside messages, ranks exchange notes. Once a second rank 0 and each other rank tell each
// other that they live, whatever the ranks compute or wait for meanwhile. A rank that has been
// silent for 30 s has failed, because it died, was stopped, or its machine is gone. Rank 0 finds
// that out about all others, and they about rank 0. A rank that fails with an error, or whose
// peer does, reports it at once. Rank 0 decides which rank has failed first and tells all; a
// rank that waits for others itself is not the culprit. If rank 0 is silent, each rank names it
// by itself.
//
// MPI_Finalize waits for all ranks, so a world that has failed ends without it. By default
// mpirun ends all ranks when one dies or ends without MPI_Finalize; with --enable-recovery it
// leaves them to this package.
package mpi
