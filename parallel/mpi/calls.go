//go:build mpi

package mpi

/*
#include <mpi.h>
#include <stdlib.h>
#include <unistd.h>

static int start(int *rank, int *size) {
	int provided, rc = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
	if (rc == MPI_SUCCESS && provided < MPI_THREAD_SERIALIZED) rc = MPI_ERR_UNSUPPORTED_OPERATION;
	if (rc == MPI_SUCCESS) rc = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	if (rc == MPI_SUCCESS) rc = MPI_Comm_rank(MPI_COMM_WORLD, rank);
	if (rc == MPI_SUCCESS) rc = MPI_Comm_size(MPI_COMM_WORLD, size);
	return rc;
}

static int post(int send, void *data, int n, int peer, int tag, MPI_Request *r) {
	if (send) return MPI_Isend(data, n, MPI_BYTE, peer, tag, MPI_COMM_WORLD, r);
	return MPI_Irecv(data, n, MPI_BYTE, peer < 0 ? MPI_ANY_SOURCE : peer, tag, MPI_COMM_WORLD, r);
}

static int test(MPI_Request *r, int *done) { return MPI_Test(r, done, MPI_STATUS_IGNORE); }

static int cancel(MPI_Request *r, int *done) {
	int rc = MPI_Cancel(r);
	if (rc == MPI_SUCCESS) rc = MPI_Test(r, done, MPI_STATUS_IGNORE);
	return rc;
}

static MPI_Request *request(void) { return malloc(sizeof(MPI_Request)); }
*/
import "C"

import (
	"fmt"
	"runtime"
	"runtime/cgo"
	"unsafe"
)

// anyone is the peer of a receive from any rank; the C function post maps it to MPI_ANY_SOURCE.
const anyone = -1

// request is a message, or a part of one, under way. Only the engine's goroutine uses it.
type request struct {
	handle *C.MPI_Request // in C memory, because MPI may keep pointers to it
	send   bool
	pin    runtime.Pinner // pins the data
}

func initialize() (rank, size int, err error) {
	var r, n C.int
	err = check("MPI_Init_thread", C.start(&r, &n))
	return int(r), int(n), err
}

func finalize() error { return check("MPI_Finalize", C.MPI_Finalize()) }

// post starts to send or receive data, at most 1 GiB, which stays pinned until the request is
// done.
func post(send bool, data []byte, peer, tag int) (*request, error) {
	r := &request{handle: C.request(), send: send}
	var cSend C.int
	if send {
		cSend = 1
	}
	memory := unsafe.Pointer(unsafe.SliceData(data))
	if memory != nil {
		r.pin.Pin(memory)
	}
	err := check("start a message", C.post(cSend, memory, C.int(len(data)), C.int(peer), C.int(tag), r.handle))
	if err != nil {
		r.free()
		return nil, err
	}
	return r, nil
}

// test returns whether r is done. After true or an error, r must not be used.
func (r *request) test() (bool, error) {
	var done C.int
	err := check("MPI_Test", C.test(r.handle, &done))
	if done != 0 || err != nil {
		r.free()
	}
	return done != 0, err
}

// cancel ends a request after a failure. MPI can cancel only a receive that has not begun. It may use the
// memory of any other request at any time, so that memory stays pinned until the process ends. cancel
// does not wait for such a request, because a peer that has died would never complete it.
func (r *request) cancel() {
	var done C.int
	if !r.send && check("MPI_Cancel", C.cancel(r.handle, &done)) == nil && done != 0 {
		r.free()
		return
	}
	cgo.NewHandle(r) // keeps r reachable: a Pinner panics if it is garbage-collected before Unpin
}

func (r *request) free() {
	r.pin.Unpin()
	C.free(unsafe.Pointer(r.handle))
}

// nap sleeps for about 20 microseconds. time.Sleep can take more than a millisecond.
func nap() { C.usleep(20) }

// check converts the result of an MPI call to an error, or nil.
func check(call string, code C.int) error {
	if code == C.MPI_SUCCESS {
		return nil
	}
	text, n := make([]byte, C.MPI_MAX_ERROR_STRING), C.int(0)
	C.MPI_Error_string(code, (*C.char)(unsafe.Pointer(&text[0])), &n)
	return fmt.Errorf("%s: %s", call, text[:n])
}
