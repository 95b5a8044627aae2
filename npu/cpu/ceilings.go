package cpu

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/easyrl/easyrl/npu"
)

// loops are the measuring loops of one thread. Their results keep a compiler from removing the
// work, and tests compare them.
type loops struct {
	// fma computes fmaRound·rounds multiply-adds in independent chains x/2 + 1. The
	// first chain starts from 3, the second from 4, and so on. fma returns the sum of
	// the chains.
	fma func(rounds int) float64
	// read returns the sum of p, whose length is a multiple of readStep.
	read func(p []float32) float64
	// copy copies src to dst, of the same length.
	copy func(dst, src []float32)
}

const (
	fmaRound = 192 // multiply-adds of a round: a multiple of the lanes of all chains of each instruction set
	readStep = 128 // values that the read loops add at a time
	// windowFloats is the number of values that a call reads or copies. A call of this size takes
	// long compared with its overhead, and short compared with a try.
	windowFloats = 256 << 10 / 4
	// A set of largestSet bytes exceeds every cache. One of smallestSet has room for each thread.
	smallestSet, largestSet = 1 << 20, 256 << 20
	// tryTime is long compared with reading the clock, and short compared with the time slice
	// that another process gets on a core. The best of several tries is therefore undisturbed.
	tryTime = 250 * time.Microsecond
	tries   = 40
	rounds  = 4 // repetitions of all tries in Ceilings
)

// PeakFLOPS measures the float32 operations per second, two for each fused
// multiply-add, that threads threads (0 for all cores) reach together in registers.
// No kernel of Open can exceed it. It takes some milliseconds.
func PeakFLOPS(threads int) (float64, error) {
	n, err := threadCount(threads)
	if err != nil {
		return 0, err
	}
	return peakFLOPS(loopsOf(""), n), nil
}

func peakFLOPS(l loops, threads int) float64 {
	calls := timeCalls(threads, func(_, times int) { l.fma(times) })
	coresPerThread := min(1, float64(runtime.GOMAXPROCS(0))/float64(threads))
	return 2 * fmaRound * coresPerThread * calls.sumOfBest()
}

// Bandwidth measures the bytes per second that threads threads (0 for all cores) read
// and copy. Each thread passes over its own part of a set of size bytes repeatedly,
// so the rates are those of the memory or of the cache that holds the set. A copied
// byte counts twice, as read and as written. Sizes are clamped to [1 MiB, 256 MiB];
// the largest exceeds every cache. Bandwidth takes some milliseconds, plus the
// allocation of the set.
func Bandwidth(threads int, size int64) (read, copied float64, err error) {
	n, err := threadCount(threads)
	if err != nil {
		return 0, 0, err
	}
	if size <= 0 {
		return 0, 0, fmt.Errorf("measure bandwidth: size is %d bytes, expected at least 1", size)
	}
	set, free, err := memory(size)
	if err != nil {
		return 0, 0, err
	}
	defer free()
	read, copied = bandwidth(loopsOf(""), n, set)
	return read, copied, nil
}

// memory allocates a set of about size bytes on the device, so that it has the page size of
// weights, and writes all of it, so that all pages exist.
func memory(size int64) (set []float32, free func(), err error) {
	dev, err := Open(npu.FP32, 1)
	if err != nil {
		return nil, nil, err
	}
	free = func() { _ = dev.Close() } // no kernel ran that could have failed
	buf, err := dev.Alloc(npu.Float32, int(min(max(size, smallestSet), largestSet)/4), npu.Activations)
	if err != nil {
		free()
		return nil, nil, fmt.Errorf("measure bandwidth: %w", err)
	}
	set = buf.Float32s()
	for i := range set {
		set[i] = 1
	}
	return set, free, nil
}

// bandwidth returns the bytes per second that the threads read and copy together. Each thread
// passes over its own part of set in windows: it reads all of the part, and copies the first half
// to the second.
func bandwidth(l loops, threads int, set []float32) (read, copied float64) {
	half := len(set) / threads / 2
	window := min(windowFloats, half/readStep*readStep)
	half = half / window * window
	next := make([]int, threads) // start of each thread's next window
	reads := timeCalls(threads, func(thread, times int) {
		part := set[2*half*thread:][:2*half]
		for range times {
			l.read(part[next[thread]:][:window])
			next[thread] = (next[thread] + window) % len(part)
		}
	})
	clear(next)
	copies := timeCalls(threads, func(thread, times int) {
		part := set[2*half*thread:][:2*half]
		for range times {
			l.copy(part[half+next[thread]:][:window], part[next[thread]:][:window])
			next[thread] = (next[thread] + window) % half
		}
	})
	const readBytes, copiedBytes = 4, 8 // of a value; a copied byte is read and written
	return readBytes * float64(window) * reads.maxAtOnce(), copiedBytes * float64(window) * copies.maxAtOnce()
}

// Ceilings measures the best rates of the machine on one thread and on threads
// threads (0 for all cores). It takes half a second and 256 MiB.
func Ceilings(threads int) (npu.Ceilings, error) {
	n, err := threadCount(threads)
	if err != nil {
		return npu.Ceilings{}, err
	}
	set, free, err := memory(largestSet)
	if err != nil {
		return npu.Ceilings{}, err
	}
	defer free()
	l := loopsOf("")
	measure := func(threads int) npu.Ceiling {
		c := npu.Ceiling{Threads: threads}
		for range rounds {
			read, copied := bandwidth(l, threads, set)
			c.FLOPPerSecond = max(c.FLOPPerSecond, peakFLOPS(l, threads))
			c.Read = max(c.Read, read)
			c.Copy = max(c.Copy, copied)
		}
		return c
	}
	c := npu.Ceilings{One: measure(1)}
	c.All = c.One
	if n > 1 {
		c.All = measure(n)
	}
	return c, nil
}

// calls holds the time spans of a task's calls, by thread. Each call did the task's work times
// times.
type calls struct {
	times int
	spans [][]span
}

// span is the time of one call, since the start of the measurement.
type span struct{ from, to time.Duration }

// rate returns calls per second.
func (s span) rate() float64 { return 1 / max(s.to-s.from, 1).Seconds() }

// timeCalls makes all threads call task repeatedly at the same time until each has called it at
// least tries times. A call of task does its work times times; timeCalls chooses times so that a
// call takes about tryTime or more.
func timeCalls(threads int, task func(thread, times int)) calls {
	c := calls{times: 1, spans: make([][]span, threads)}
	for {
		began := time.Now()
		task(0, c.times)
		if time.Since(began) >= tryTime {
			break
		}
		c.times *= 2
	}
	began := time.Now()
	var done atomic.Int64 // threads that have called task tries times; they continue until all have
	var group sync.WaitGroup
	for i := range threads {
		group.Go(func() {
			for n := 1; done.Load() < int64(threads); n++ {
				s := span{from: time.Since(began)}
				task(i, c.times)
				s.to = time.Since(began)
				c.spans[i] = append(c.spans[i], s)
				if n == tries {
					done.Add(1)
				}
			}
		})
	}
	group.Wait()
	return c
}

// sumOfBest returns how often per second all threads together do the task's work. It adds the
// rates of each thread's best call among those in the time in which all threads ran or, if there
// is none, the thread's best call overall. Another process that takes a core for a while does
// not affect the result. The result is too high for a resource that threads share, such as memory.
func (c *calls) sumOfBest() float64 {
	from, to := time.Duration(0), time.Duration(math.MaxInt64)
	for _, thread := range c.spans {
		from, to = max(from, thread[0].from), min(to, thread[len(thread)-1].to)
	}
	sum := 0.0
	for _, thread := range c.spans {
		best, bestTogether := 0.0, 0.0
		for _, s := range thread {
			best = max(best, s.rate())
			if s.from >= from && s.to <= to {
				bestTogether = max(bestTogether, s.rate())
			}
		}
		if bestTogether > 0 {
			best = bestTogether
		}
		sum += best
	}
	return sum * float64(c.times)
}

// maxAtOnce returns how often per second all threads together did the task's work at the best
// moment, among the midpoints of the first thread's calls. A thread that waited for a core counts
// as slow for that call.
func (c *calls) maxAtOnce() float64 {
	best := 0.0
	for _, s := range c.spans[0] {
		moment := (s.from + s.to) / 2
		rate := 0.0
		for _, thread := range c.spans {
			for _, other := range thread {
				if other.from <= moment && moment < other.to {
					rate += other.rate()
				}
			}
		}
		best = max(best, rate)
	}
	return best * float64(c.times)
}
