// Command bench compares easyrl with its alternatives on the same machine: the same
// model, threads and work, in alternation, in one run.
//
//	make bench
//	go run ./bench -run generate -rounds 5
//
// It prints a table of ratios and writes it to bench/results, together with the raw
// figures and a plot of time and memory growth. bench/peers/setup installs the peers'
// packages; without them, the table has our figures only.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strconv"
)

func main() {
	pattern := flag.String("run", "", "`REGEXP` of measurements to run; all by default")
	rounds := flag.Int("rounds", 3, "alternate `N` runs of each side")
	peers := flag.String("peers", "bench/peers", "`DIR` of the peers' scripts")
	out := flag.String("out", "bench/results", "output `DIR`; empty writes nothing")
	flag.Parse()
	if err := run(*pattern, *rounds, *peers, *out); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(pattern string, rounds int, peers, out string) error {
	if flag.Arg(0) == "work" { // this process is one side of a measurement
		return workProcess(flag.Args()[1:])
	}
	if flag.NArg() > 0 || rounds < 1 {
		return errors.New("expected only flags, and -rounds of at least 1; see -h")
	}
	match, err := regexp.Compile(pattern)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	r, err := newReport()
	if err != nil {
		return err
	}
	for _, m := range measurements(peers) {
		if !match.MatchString(m.name) {
			continue
		}
		fmt.Fprintln(os.Stderr, m.name)
		result, err := m.measure(rounds)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		r.Results = append(r.Results, result)
	}
	if match.MatchString("asynchrony") {
		if r.Asynchrony, err = asynchronies(rounds); err != nil {
			return err
		}
	}
	if match.MatchString("curves") {
		if r.Curves, err = curves(); err != nil {
			return err
		}
	}
	fmt.Print(r.table())
	if out == "" || pattern != "" && out == "bench/results" {
		return nil // do not keep partial results
	}
	return r.write(out)
}

// workProcess is the command "work KIND MODEL THREADS ITERATIONS". It prints the outcome as JSON.
func workProcess(args []string) error {
	if len(args) != 4 {
		return errors.New("work: expected KIND MODEL THREADS ITERATIONS")
	}
	threads, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	o, err := work(args[0], args[1], threads, n)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(o)
}
