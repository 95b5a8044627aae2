// Command load tests easyrl serve with a crowd of well- and ill-behaved clients and
// reports whether the server survived.
//
//	go run ./bench/load
//	go run ./bench/load -connections 500 -duration 10m
//	go run ./bench/load -url http://host:8000 -token-file token
//
// It creates a tiny model, serves it with a real engine in its own process, and records
// the answer to each question under two sets of weights. The crowd then asks those
// questions in many ways. Other clients disconnect, stall, or send malformed or
// oversized requests, while the weights alternate. Each answer must match the one
// recorded for its weights or be a refusal with a reason. At the end, the server must
// be alive, answer as before, and hold no more goroutines, memory and cache pages than
// before. Otherwise the command exits with status 1. A server named by -url keeps its
// weights.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"
)

// options holds the command line.
type options struct {
	connections int
	duration    time.Duration
	every       time.Duration // between two samples of the server
	pause       time.Duration // between two weight updates
	url         string
	tokenFile   string
	binary      string
	seed        uint64
}

func main() {
	var o options
	flag.IntVar(&o.connections, "connections", 2000, "number of concurrent clients, one connection each")
	flag.DurationVar(&o.duration, "duration", time.Minute, "how long the clients send requests")
	flag.DurationVar(&o.every, "every", 30*time.Second, "interval between checks of the server")
	flag.DurationVar(&o.pause, "update", 5*time.Second, "interval between weight updates")
	flag.StringVar(&o.url, "url", "", "running server, `http://HOST:PORT`; by default the command starts one")
	flag.StringVar(&o.tokenFile, "token-file", "", "`FILE` with the token for -url")
	flag.StringVar(&o.binary, "easyrl", "", "easyrl binary `FILE` to start; built by default")
	flag.Uint64Var(&o.seed, "seed", 1, "random seed of the clients")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := o.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

// run executes the command. It reports all missed targets as one error.
func (o *options) run(ctx context.Context) error {
	if o.connections < 1 || o.duration <= 0 || o.every <= 0 || o.pause <= 0 {
		return fmt.Errorf("connections %d, duration %v, every %v, update %v, expected more than 0", o.connections, o.duration, o.every, o.pause)
	}
	if err := raiseFiles(uint64(2*o.connections + 200)); err != nil {
		return err
	}
	s, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer s.kill()
	l := &load{options: o, server: s}
	if err := l.learn(ctx); err != nil {
		return fmt.Errorf("before the load: %w", err)
	}
	if err := l.measure(ctx); err != nil {
		return fmt.Errorf("%w%s", err, s.said())
	}
	if err := s.end(); err != nil {
		l.tally.fault("the server's end", err)
	}
	return l.report()
}

// load is the state of one run.
type load struct {
	*options
	server    *server
	version   int64 // of the last update
	questions []*question
	tally     tally
	began     time.Time
	looks     []look
	before    look // idle server, after clients of all kinds
	after     look
}

// measure runs the crowd twice: what the server retains from the first, short run is
// not a leak.
func (l *load) measure(ctx context.Context) error {
	warm := min(l.duration/6, 20*time.Second)
	if err := l.crowd(ctx, warm); err != nil {
		return err
	}
	first, err := l.settle(ctx, nil)
	if err != nil {
		return err
	}
	l.before = first
	l.tally.restart()
	fmt.Printf("warm after %v: %v\n", warm.Round(time.Second), first)
	l.began = time.Now()
	watching, unwatch := context.WithCancel(ctx)
	watched := make(chan error, 1)
	go func() { watched <- l.watch(watching) }()
	err = l.crowd(ctx, l.duration)
	unwatch()
	if watchErr := <-watched; err == nil {
		err = watchErr
	}
	if err != nil {
		return err
	}
	if l.after, err = l.settle(ctx, &first); err != nil {
		return err
	}
	return l.again(ctx)
}

// again repeats each question alone: the answers must match the recorded ones.
func (l *load) again(ctx context.Context) error {
	for _, q := range l.questions {
		got, err := l.server.ask(ctx, q)
		if err != nil {
			return fmt.Errorf("after the load: %w", err)
		}
		if want := q.want[l.server.weightsOf(got.version)]; got.text != want {
			l.tally.fault("after the load", fmt.Errorf("%s: got %.300s, expected %.300s", q.name, got.text, want))
		}
	}
	return nil
}

// report prints the figures and their targets. It returns an error if a target is
// missed.
func (l *load) report() error {
	var out bytes.Buffer
	l.tally.print(&out, l.duration)
	missed := 0
	bar := func(name, value, want string, ok bool) {
		verdict := "ok"
		if !ok {
			verdict = "MISSED"
			missed++
		}
		fmt.Fprintf(&out, "%-34s %16s   %-32s %s\n", name, value, want, verdict)
	}
	wrong := l.tally.wrong()
	bar("wrong responses and other faults", fmt.Sprint(wrong), "0", wrong == 0)
	bar("right responses", fmt.Sprint(l.tally.right()), "more than 0", l.tally.right() > 0)
	bar("goroutines, idle", fmt.Sprint(l.after.goroutines), fmt.Sprintf("at most %.0f", l.before.goroutines+slack), l.after.goroutines <= l.before.goroutines+slack)
	bar("cache pages in use, idle", fmt.Sprintf("%.4g%%", 100*l.after.cache), "0%", l.after.cache == 0)
	most := l.before.mostMemory()
	bar("resident memory, idle", fmt.Sprintf("%.1f MiB", l.after.memory), fmt.Sprintf("at most %.1f MiB", most), l.after.memory <= most)
	if early, late, ok := l.halves(); ok {
		bar("resident memory, peak in last half", fmt.Sprintf("%.1f MiB", late), fmt.Sprintf("at most %.1f MiB, 1.1 x the first", 1.1*early), late <= 1.1*early)
	}
	if _, err := os.Stdout.Write(out.Bytes()); err != nil {
		return err
	}
	if missed > 0 {
		return fmt.Errorf("%d targets missed", missed)
	}
	return nil
}
