// Package far is a device for tests whose memory the host cannot address, as a device
// library for package device.
//
// It runs the CPU's kernels, but only inside a call that waits. An address of its memory
// faults on the host. Memory is poisoned until it is written and after it is freed: NaN as
// float32, out of range as an index. Sync returns a failure if a kernel gets an address of
// the host, of freed memory or beyond an allocation, or an index out of range.
package far

// Memory is the device memory that all devices of a library use.
type Memory struct {
	Live  int64 // bytes now, without those being freed
	Peak  int64 // bytes at most since Reset
	Packs int64 // packed matrices since Reset
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
