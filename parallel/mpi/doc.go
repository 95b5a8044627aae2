// Package mpi connects the ranks that mpirun or srun started, over MPI.
//
// It is built with the tag mpi, cgo and CC=mpicc; "make mpi" does so.
//
// One goroutine, the engine's, makes all calls of MPI (MPI_THREAD_SERIALIZED). It polls the requests
// under way and checks their deadlines. Calls of the transport queue jobs for it and wait. MPI uses a
// message's memory until its request is done, so the memory stays pinned until then. After a failure a
// request may never be done, and then its memory is never freed (request.cancel).
//
// In addition to messages, ranks exchange notes. Rank 0 and each other rank send each other a beat once a
// second, whatever they compute or wait for. A rank that is silent for 30 s has failed: it died, was
// stopped, or its machine is gone. Rank 0 watches all others, and they watch rank 0. A rank that
// finds a failure, its own or a peer's, reports it to rank 0. Rank 0 decides which rank has failed
// first and sends its verdict to all. A rank whose message is late is not the culprit if it waits for
// others itself (parallel.Culprit). If rank 0 is silent, each rank decides on its own that rank 0 failed.
//
// MPI_Finalize waits for all ranks, so a world that has failed ends without it. By default
// mpirun ends all ranks when one dies or ends without MPI_Finalize; with --enable-recovery it
// leaves them to this package.
package mpi
