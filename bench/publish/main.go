// Command publish measures how fast weights reach instances on this machine: as a file
// in memory, and as a stream over loopback HTTP.
//
//	go run ./bench/publish
//
// It builds easyrl, writes a model with random weights, and starts real servers, each
// in its own process as in a run; this process acts as the trainer. It times a publish
// to all of them at once, from weights without a known checksum to the last
// confirmation that an instance serves them. In the same rounds, all cores copy the
// same number of bytes in memory. Figures are medians over rounds.
//
// Targets: publishing the file moves the necessary bytes (one write of the file, and
// one read into each instance's weights) at 60% or more of the speed of a memory copy;
// a stream to one instance reaches 1 GB/s. A byte that is read and written counts
// once in both.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"time"
)

func main() {
	b := bench{}
	flag.IntVar(&b.bytes, "bytes", 1<<30, "approximate model size in bytes")
	flag.IntVar(&b.instances, "instances", 4, "instances")
	flag.IntVar(&b.rounds, "rounds", 7, "rounds")
	flag.IntVar(&b.threads, "threads", 1, "threads of each instance")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, &b); err != nil {
		fmt.Fprintln(os.Stderr, "publish:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has run
	}
}

func run(ctx context.Context, b *bench) error {
	if b.rounds < 1 || b.instances < 1 {
		return fmt.Errorf("%d rounds and %d instances, expected at least 1 of each", b.rounds, b.instances)
	}
	defer b.close()
	if err := b.open(ctx); err != nil {
		return err
	}
	if err := b.measure(ctx); err != nil {
		return err
	}
	return b.print()
}

// print shows the figures and their targets. It returns an error if a target is missed.
func (b *bench) print() error {
	gb := float64(b.weights.Bytes()) / 1e9
	say := func(name string, times []time.Duration, bytes float64) float64 {
		slices.Sort(times)
		median := times[len(times)/2].Seconds()
		fmt.Printf("%-28s %6.3f s (%.3f to %.3f)  %6.2f GB/s of %.2f GB\n", name, median, times[0].Seconds(),
			times[len(times)-1].Seconds(),
			bytes/median, bytes)
		return bytes / median
	}
	fmt.Printf("%.2f GB of weights, %d instances of %d threads, %d cores, %s\n", gb, b.instances, b.threads,
		runtime.GOMAXPROCS(0), b.dev.Info().Name)
	fmt.Printf("%-28s %6.3f s\n", "first publish of the file", b.first.Seconds())
	memory := say("copy in memory, all cores", b.times["copy"], gb)
	file := say("file, to all", b.times["file"], gb*float64(1+b.instances))
	stream := say("stream, to one", b.times["stream"], gb)
	say("streams, to all", b.times["streams"], gb*float64(b.instances))
	missed := 0
	target := func(name string, value, want float64) {
		verdict := "ok"
		if value < want {
			verdict = "MISSED"
			missed++
		}
		fmt.Printf("%-28s %6.2f, at least %.2f: %s\n", name, value, want, verdict)
	}
	target("file, share of the copy", file/memory, 0.6)
	target("stream, GB/s", stream, 1)
	if missed > 0 {
		return fmt.Errorf("%d targets missed", missed)
	}
	return nil
}
