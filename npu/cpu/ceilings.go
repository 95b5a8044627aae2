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

// loops are what the ceilings are measured with, for one thread each. Their
// results prove that the work was done.
type loops struct {
	// fma makes fmaRound·rounds multiply-adds, in independent chains x/2 + 1 of
	// which the first starts from 3, the second from 4 and so on; it returns the
	// sum of the chains.
	fma func(rounds int) float64
	// read returns the sum of p, whose length is a multiple of readStep.
	read func(p []float32) float64
	copy func(dst, src []float32)
}

const (
	fmaRound = 192
	readStep = 128
	// A set is read and copied in windows of this size, each long beside a call
	// and short beside a try.
	windowFloats = 256 << 10 / 4
	// No cache holds the largest set. The smallest has room for each thread.
	smallestSet, largestSet = 1 << 20, 256 << 20
	// A try is long beside a reading of the clock and short beside a neighbour's
	// turn on a core; the best of several is one that nobody disturbed.
	tryTime = 250 * time.Microsecond
	tries   = 40
	rounds  = 4 // of all tries, where they may be worth their time
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
	calls := call(threads, func(_, times int) { l.fma(times) })
	cores := min(1, float64(runtime.GOMAXPROCS(0))/float64(threads)) // for each thread
	return 2 * fmaRound * cores * calls.sumOfBest()
}

// Bandwidth is the number of bytes a second that threads threads (0 for all
// cores) read, and that they copy, going over and over a set of the given size,
// each over its own part: from the memory or from the cache that holds the set.
// A byte copied counts twice, as read and as written. Smaller sets are measured as
// 1 MiB, larger ones as 256 MiB, which no cache holds. It takes some milliseconds
// beside the set's allocation.
func Bandwidth(threads int, size int64) (read, copied float64, err error) {
	n, err := threadCount(threads)
	if err != nil {
		return 0, 0, err
	}
	if size <= 0 {
		return 0, 0, fmt.Errorf("measure bandwidth: a set of %d bytes, expected 1 or more", size)
	}
	set, free, err := memory(size)
	if err != nil {
		return 0, 0, err
	}
	defer free()
	read, copied = bandwidth(loopsOf(""), n, set)
	return read, copied, nil
}

// memory is a set of about size bytes that are really there, in the pages that
// weights have.
func memory(size int64) (set []float32, free func(), err error) {
	dev, err := Open(1)
	if err != nil {
		return nil, nil, err
	}
	free = func() { _ = dev.Close() } // no kernel ran that could have failed
	buf, err := dev.Alloc(int(min(max(size, smallestSet), largestSet)/4), npu.Activations)
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

// bandwidth goes over set in windows, each thread over its own part: read over
// all of it, copied from its first half to the second.
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

// Ceilings measures what the machine can do at best on one thread and on threads
// threads, 0 for all cores. It takes half a second and 256 MiB.
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
			c.FLOPPerSecond, c.Read, c.Copy = max(c.FLOPPerSecond, peakFLOPS(l, threads)), max(c.Read, read), max(c.Copy, copied)
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

// calls are the spans in which each of several threads called a task times times.
type calls struct {
	times int
	spans [][]span
}

type span struct{ from, to time.Duration }

func (s span) rate() float64 { return 1 / max(s.to-s.from, 1).Seconds() }

// call has threads call task over and over at the same time, each at least tries
// times. times is how much a call is to do, so that it takes tryTime or more.
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

// sumOfBest is how often a second all threads together do the task once, each at
// its best while none had not begun or had ended, or at all where no call of its
// was whole then. A neighbour that takes a core for a while changes nothing; of
// what threads share, as the memory, it would be too much.
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

// mostAtOnce is how often a second all threads together did the task once, at the
// best moment among the middles of the first thread's calls. One that waited for a
// core meanwhile was slow for that long.
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
