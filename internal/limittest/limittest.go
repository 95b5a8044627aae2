// Package limittest holds what reads bytes from outside to its limits in fuzz
// tests.
package limittest

import (
	"runtime/metrics"
	"testing"
	"time"
)

// The limits of one call, whatever it is given.
const (
	maxTime  = time.Second
	maxBytes = 1 << 30 // allocated, which bounds what is held
)

// Run calls f, which fails the test where it takes more than a second of this
// process's processor time or allocates more than a GiB.
func Run(t testing.TB, f func()) {
	t.Helper()
	began, held := busy(), allocated()
	f()
	if took := busy() - began; took > maxTime {
		t.Fatalf("took %v of processor time, expected %v at most", took, maxTime)
	}
	if n := allocated() - held; n > maxBytes {
		t.Fatalf("allocated %d bytes, expected %d at most", n, maxBytes)
	}
}

func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
