// Package limittest enforces time and memory limits on parsers in fuzz tests.
package limittest

import (
	"runtime/metrics"
	"testing"
	"time"
)

// Limits of one call.
const (
	maxTime  = time.Second
	maxBytes = 1 << 30 // allocated in total, an upper bound of live memory
)

// Run calls f and fails the test if f uses more than a second of this process's
// processor time or allocates more than 1 GiB. It panics in a parallel test, because it
// would also count the work of other tests.
func Run(t testing.TB, f func()) {
	t.Helper()
	t.Setenv("EASYRL_LIMITTEST", "") // panics in a parallel test
	busyBefore, allocatedBefore := busy(), allocated()
	f()
	if took := busy() - busyBefore; took > maxTime {
		t.Fatalf("took %v of processor time, expected %v at most", took, maxTime)
	}
	if n := allocated() - allocatedBefore; n > maxBytes {
		t.Fatalf("allocated %d bytes, expected %d at most", n, maxBytes)
	}
}

// allocated returns the total number of bytes that this process has allocated so far.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
