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

// loops are the measuring loops of one thread. Their results prove that the work was
// done.
type loops struct {
	// fma computes fmaRound·rounds multiply-adds in independent chains x/2 + 1. The
	// first chain starts from 3, the second from 4, and so on. fma returns the sum of
	// the chains.
	fma func(rounds int) float64
	// read returns the sum of p, whose length is a multiple of readStep.
	read func(p []float32) float64
	copy func(dst, src []float32)
}

const (
	fmaRound = 192
	readStep = 128
	// A set is read and copied in windows of this size. A window takes long compared
	// with the overhead of a call, and short compared with a try.
	windowFloats = 256 << 10 / 4
	// The largest set exceeds every cache. The smallest has room for each thread.
	smallestSet, largestSet = 1 << 20, 256 << 20
	// A try takes long compared with reading the clock, and short compared with a
	// neighbour's time slice on a core. The best of several tries is an undisturbed
	// one.
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
	calls := call(threads, func(_, times int) { l.fma(times) })
	cores := min(1, float64(runtime.GOMAXPROCS(0))/float64(threads)) // per thread
	return 2 * fmaRound * cores * calls.sumOfBest()
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

// memory allocates a set of about size bytes and touches all of it. Its pages are
// like those of weights.
func memory(size int64) (set []float32, free func(), err error) {
	dev, err := Open(1)
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

// bandwidth passes over set in windows, each thread over its own part. It reads all
// of the part and copies the first half to the second.
func bandwidth(l loops, threads int, set []float32) (read, copied float64) {
	half := len(set) / threads / 2
	window := min(windowFloats, half/readStep*readStep)
	half = half / window * window
	at := make([]int, threads)
	reads := call(threads, func(thread, times int) {
		part := set[2*half*thread:][:2*half]
		for range times {
			l.read(part[at[thread]:][:window])
			at[thread] = (at[thread] + window) % len(part)
		}
	})
	clear(at)
	copies := call(threads, func(thread, times int) {
		part := set[2*half*thread:][:2*half]
		for range times {
			l.copy(part[half+at[thread]:][:window], part[at[thread]:][:window])
			at[thread] = (at[thread] + window) % half
		}
	})
	return 4 * float64(window) * reads.mostAtOnce(), 2 * 4 * float64(window) * copies.mostAtOnce()
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
	of := func(threads int) npu.Ceiling {
		c := npu.Ceiling{Threads: threads}
		for range rounds {
			read, copied := bandwidth(l, threads, set)
			c.FLOPPerSecond, c.Read, c.Copy = max(c.FLOPPerSecond, peakFLOPS(l, threads)), max(c.Read, read),
				max(c.Copy, copied)
		}
		return c
	}
	c := npu.Ceilings{One: of(1)}
	c.All = c.One
	if n > 1 {
		c.All = of(n)
	}
	return c, nil
}

// calls holds, for each of several threads, the time spans of its calls of a task.
// Each call did the task times times.
type calls struct {
	times int
	spans [][]span
}

type span struct{ from, to time.Duration }

func (s span) rate() float64 { return 1 / max(s.to-s.from, 1).Seconds() }

// call makes all threads call task repeatedly at the same time, each thread at least
// tries times. times is the amount of work per call, chosen so that a call takes at
// least about tryTime.
func call(threads int, task func(thread, times int)) calls {
	c := calls{times: 1, spans: make([][]span, threads)}
	for {
		began := time.Now()
		if task(0, c.times); time.Since(began) >= tryTime {
			break
		}
		c.times *= 2
	}
	began := time.Now()
	var done atomic.Int64
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

// sumOfBest returns how often per second all threads together do the task once. It
// adds each thread's best call among those within the time in which all threads were
// running or, if there is none, the thread's best call overall. A neighbour that
// takes a core for a while does not affect the result. For a resource that threads
// share, such as memory, the result is too high.
func (c *calls) sumOfBest() float64 {
	from, to := time.Duration(0), time.Duration(math.MaxInt64)
	for _, thread := range c.spans {
		from, to = max(from, thread[0].from), min(to, thread[len(thread)-1].to)
	}
	sum := 0.0
	for _, thread := range c.spans {
		best, alone := 0.0, 0.0
		for _, s := range thread {
			if alone = max(alone, s.rate()); s.from >= from && s.to <= to {
				best = max(best, s.rate())
			}
		}
		if best == 0 {
			best = alone
		}
		sum += best
	}
	return sum * float64(c.times)
}

// mostAtOnce returns how often per second all threads together did the task once, at
// the best moment. The moments are the midpoints of the first thread's calls. A
// thread that waited for a core counts as slow for that call.
func (c *calls) mostAtOnce() float64 {
	most := 0.0
	for _, s := range c.spans[0] {
		at, rate := (s.from+s.to)/2, 0.0
		for _, thread := range c.spans {
			for _, other := range thread {
				if other.from <= at && at < other.to {
					rate += other.rate()
				}
			}
		}
		most = max(most, rate)
	}
	return most * float64(c.times)
}
