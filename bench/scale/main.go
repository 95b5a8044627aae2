// Command scale measures the cost of the producer and the fleet with many instances:
// it runs a step of many prompts over simulated instances, which take as long as a real
// model but compute nothing.
//
//	go run ./bench/scale
//
// Targets: the process, simulated instances included, uses less than one core; live
// memory does not grow during the step; and slots are empty at most 3% more of the
// time than the response lengths dictate. The reference is a list schedule, which
// gives each response, in prompt order, to the first free slot. With slower or faster
// instances (-simulate), the command predicts how long a step takes on a cluster and how
// much of the time the cluster's slots are busy.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/easyrl/easyrl/inference/simulate"
)

func main() {
	s := scale{}
	flag.IntVar(&s.instances, "instances", 1000, "instances")
	flag.IntVar(&s.prompts, "prompts", 100_000, "prompts per step")
	flag.IntVar(&s.group, "group", 8, "responses per prompt")
	flag.IntVar(&s.maxTokens, "max-tokens", 2048, "maximum tokens per response")
	flag.Float64Var(&s.ahead, "ahead", -1,
		"work queued ahead per instance, as a share of its capacity; negative for the default")
	flag.IntVar(&s.inFlight, "in-flight", 0, "groups in flight; 0 lets the fleet choose")
	spec := flag.String("simulate", "lengths=lognormal:500,0.6,tokens_per_second=125,slots=32",
		"simulated instance, as in easyrl serve -simulate")
	flag.Parse()
	if err := run(&s, *spec); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func run(s *scale, spec string) error {
	var err error
	if s.cfg, err = simulate.Parse(spec); err != nil {
		return err
	}
	fmt.Printf("%d instances of %d slots, %d prompts x %d responses, %s, %v tokens/s a response, %d cores\n",
		s.instances, s.cfg.Slots, s.prompts, s.group, s.cfg.Lengths, s.cfg.TokensPerSecond, runtime.GOMAXPROCS(0))
	r, err := s.measure(context.Background())
	if err != nil {
		return err
	}
	return r.print()
}

// print shows the figures and their targets. It returns an error if a target is missed.
func (r *result) print() error {
	missed := 0
	target := func(name, value, want string, ok bool) {
		verdict := "ok"
		if !ok {
			verdict = "MISSED"
			missed++
		}
		fmt.Printf("%-38s %14s   %-31s %s\n", name, value, want, verdict)
	}
	say := func(name string, format string, args ...any) {
		fmt.Printf("%-38s %14s\n", name, fmt.Sprintf(format, args...))
	}
	say("publish to all", "%.2f s", r.publish.Seconds())
	say("step", "%.2f s", r.wall.Seconds())
	say("ideal list schedule", "%.2f s", r.ideal.Seconds())
	say("groups per second", "%.0f", float64(r.groups)/r.wall.Seconds())
	say("tokens per second", "%.0f", float64(r.tokens)/r.wall.Seconds())
	say("CPU time per group", "%v", (r.cpu / time.Duration(r.groups)).Round(time.Microsecond))
	target("CPU time, cores", fmt.Sprintf("%.3f", r.cores()), "less than 1", r.cores() < 1)
	say("heap before", "%.1f MiB", mib(r.before))
	say("heap, peak in the second quarter", "%.1f MiB", mib(r.early))
	flat := float64(r.late) <= 1.1*float64(r.early)
	target("heap, peak in the last quarter", fmt.Sprintf("%.1f MiB", mib(r.late)), "at most 1.1 times that", flat)
	records := uint64(r.goroutines * goroutineRecord)
	say("goroutine records", "%.1f MiB", mib(records))
	target("heap after, minus goroutine records", fmt.Sprintf("%.1f MiB", mib(r.after-min(r.after, records))),
		"at most 8 MiB above heap before", r.after <= r.before+records+8<<20)
	say("idle slots forced by the lengths", "%.2f%%", 100*r.idle(r.ideal))
	beyond := r.idle(r.wall) - r.idle(r.ideal)
	target("idle slots beyond that", fmt.Sprintf("%.2f%%", 100*beyond), "at most 3%", beyond <= 0.03)
	if missed > 0 {
		return fmt.Errorf("%d targets missed", missed)
	}
	return nil
}

func mib(bytes uint64) float64 { return float64(bytes) / (1 << 20) }
