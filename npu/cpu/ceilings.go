package cpu

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/easyrl/easyrl/npu"
)

// loops are what the ceilings are measured with, for one thread each. Their
// results prove that the work was done.
type loops struct {
	// fma makes fmaRound·rounds multiply-adds, in independent chains x/2 + 1 of
	// which the first starts from 0, the second from 1 and so on; it returns the
	// sum of the chains.
	fma func(rounds int) float64
	// read returns the sum of p, whose length is a multiple of readStep.
	read func(p []float32) float64
	copy func(dst, src []float32)
}

const (
	fmaRound = 192
	readStep = 128
	// No cache holds the largest set; on the smallest a pass is long beside a call.
	smallestSet, largestSet = 256 << 10, 256 << 20
	// A try is long beside a reading of the clock and short beside a neighbour's
	// turn on a core; the best of several is one that nobody disturbed.
	tryTime = 250 * time.Microsecond
	tries   = 40
)

// PeakFLOPS is the number of float32 operations a second, two for each fused
// multiply-add, that threads threads (0 for all cores) reach together in
// registers: what no kernel of Open can exceed. It takes some milliseconds.
func PeakFLOPS(threads int) (float64, error) {
	n, err := threadCount(threads)
	if err != nil {
		return 0, err
	}
	return peakFLOPS(loopsOf(""), n), nil
}

func peakFLOPS(l loops, threads int) float64 {
	return best(threads, 2*fmaRound, func(_, times int) { l.fma(times) })
}

// Bandwidth is the number of bytes a second that threads threads (0 for all
// cores) read, and that they copy, going over and over a set of the given size,
// each over its own part: from the memory or from the cache that holds the set.
// A byte copied counts twice, as read and as written. Smaller sets are measured as
// 256 KiB, larger ones as 256 MiB, which no cache holds. It takes some
// milliseconds, for large sets up to a second.
func Bandwidth(threads int, size int64) (read, copied float64, err error) {
	n, err := threadCount(threads)
	if err != nil {
		return 0, 0, err
	}
	if size <= 0 {
		return 0, 0, fmt.Errorf("measure bandwidth: a set of %d bytes, expected 1 or more", size)
	}
	dev, err := Open(1) // whose memory has the pages that weights have
	if err != nil {
		return 0, 0, err
	}
	defer dev.Close() //nolint:errcheck // no kernel ran that could have failed
	// Halves of parts are copied to each other.
	part := 2 * readStep * max(1, int(min(max(size, smallestSet), largestSet))/(2*readStep*4*n))
	buf, err := dev.Alloc(part*n, npu.Activations)
	if err != nil {
		return 0, 0, fmt.Errorf("measure bandwidth: %w", err)
	}
	set := buf.Float32s()
	for i := range set { // so that each page is in memory
		set[i] = 1
	}
	read, copied = bandwidth(loopsOf(""), n, set)
	return read, copied, nil
}

func bandwidth(l loops, threads int, set []float32) (read, copied float64) {
	part := len(set) / threads
	bytes := 4 * float64(part)
	read = best(threads, bytes, func(thread, times int) {
		for range times {
			l.read(set[thread*part : (thread+1)*part])
		}
	})
	copied = best(threads, bytes, func(thread, times int) {
		from, to := set[thread*part:thread*part+part/2], set[thread*part+part/2:(thread+1)*part]
		for range times {
			l.copy(to, from)
		}
	})
	return read, copied
}

// Ceilings measures what the machine can do at best on one thread and on threads
// threads, 0 for all cores. It takes a second or two and 256 MiB.
func Ceilings(threads int) (npu.Ceilings, error) {
	n, err := threadCount(threads)
	if err != nil {
		return npu.Ceilings{}, err
	}
	of := func(threads int) (c npu.Ceiling, err error) {
		c.Threads = threads
		if c.FLOPS, err = PeakFLOPS(threads); err != nil {
			return c, err
		}
		c.Read, c.Copy, err = Bandwidth(threads, largestSet)
		return c, err
	}
	one, err := of(1)
	if err != nil || n == 1 {
		return npu.Ceilings{One: one, All: one}, err
	}
	all, err := of(n)
	return npu.Ceilings{One: one, All: all}, err
}

// best is the highest rate that threads threads reach at one time: they call task
// over and over, and each call does times·unit. A thread that waits for a core
// meanwhile is slow for that long.
func best(threads int, unit float64, task func(thread, times int)) float64 {
	times := 1
	for {
		began := time.Now()
		if task(0, times); time.Since(began) >= tryTime {
			break
		}
		times *= 2
	}
	began := time.Now()
	all := make([][]span, threads)
	var done atomic.Int64
	var group sync.WaitGroup
	for i := range threads {
		group.Go(func() {
			for n := 1; done.Load() < int64(threads); n++ {
				s := span{from: time.Since(began)}
				task(i, times)
				s.to = time.Since(began)
				all[i] = append(all[i], s)
				if n == tries {
					done.Add(1)
				}
			}
		})
	}
	group.Wait()
	return unit * float64(times) * mostAtOnce(all)
}

// span is one call of a task.
type span struct{ from, to time.Duration }

// mostAtOnce is the highest number of calls a second, over the middles of the
// first thread's calls, that all threads together were making at that time.
func mostAtOnce(all [][]span) float64 {
	most := 0.0
	for _, s := range all[0] {
		at, rate := (s.from+s.to)/2, 0.0
		for _, thread := range all {
			for _, other := range thread {
				if other.from <= at && at < other.to {
					rate += 1 / (other.to - other.from).Seconds()
				}
			}
		}
		most = max(most, rate)
	}
	return most
}
