// Package mpi connects the ranks that mpirun or srun started, over MPI.
//
// It is built with the tag mpi, cgo and CC=mpicc; "make mpi" does so. One goroutine, locked to
// its thread, makes all calls of MPI and polls the messages under way together with their
// deadlines. A rank that fails tells all others. Nobody arbitrates, so if two ranks fail at
// the same time, the others may name either. A rank that dies is mpirun's to notice, which by
// default ends the others.
package mpi
