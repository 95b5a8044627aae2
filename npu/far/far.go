// Package far is a device for tests: a device library for package device, whose memory the host
// cannot address.
//
// It runs the CPU's kernels, but only inside a call that waits. The host faults if it uses an
// address of the device. Memory is poisoned until it is written and after it is freed: NaN as
// float32, out of range as an index. Sync returns a failure if a kernel gets an address of
// the host, of freed memory or beyond an allocation, or an index out of range.
package far

// Memory is the device memory that all devices of a library use.
type Memory struct {
	Live  int64 // bytes allocated at present, except those that a queued Free will free
	Peak  int64 // maximum of Live since Reset
	Packs int64 // number of matrices packed since Reset
}

// Counters count what all devices of a library did since Reset.
type Counters struct {
	Waits     int64 // calls that found work in the queue and waited for it
	Uploads   int64 // transfers to the device, packed matrices included
	Downloads int64 // transfers to the host, unpacked matrices included
	BytesUp   int64
	BytesDown int64
	Kernels   int64 // calls of kernels, captured ones included
	Captures  int64
	Replays   int64
}
