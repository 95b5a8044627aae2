package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/loss"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// curve shows how time and memory grow with one quantity.
type curve struct {
	Name   string       `json:"name"`
	Unit   string       `json:"unit"` // of X
	Points []curvePoint `json:"points"`
}

type curvePoint struct {
	X         float64 `json:"x"`
	Seconds   float64 `json:"seconds"` // per step
	PeakBytes int64   `json:"peak_bytes"`
}

// curves measures how the quickstart's step scales with threads, and how training steps of
// 0.8 M parameters scale with sequence length and group size.
func curves() ([]curve, error) {
	kinds := []struct {
		kind, name, unit string
		xs               []int
		args             func(x string) []string
	}{
		{"quickstart", "quickstart step", "threads", []int{1, 2},
			func(x string) []string { return []string{"quickstart", "-", x, "10"} }},
		{"length", "one sequence", "tokens", []int{512, 1024, 2048, 4096, 8192},
			func(x string) []string { return []string{"length", x, "2", "3"} }},
		{"shared", "a prompt of 448 once, with responses of 64", "responses", []int{1, 2, 4, 8, 16, 32, 64},
			func(x string) []string { return []string{"shared", x, "2", "3"} }},
		{"repeated", "the prompt again for each response", "responses", []int{1, 2, 4, 8, 16, 32, 64},
			func(x string) []string { return []string{"repeated", x, "2", "3"} }},
	}
	var out []curve
	for _, k := range kinds {
		c := curve{Name: k.name, Unit: k.unit}
		for _, x := range k.xs {
			fmt.Fprintln(os.Stderr, k.name, x)
			o, err := runSide(exec.Command("/proc/self/exe", append([]string{"work"}, k.args(strconv.Itoa(x))...)...))
			if err != nil {
				return nil, err
			}
			c.Points = append(c.Points, curvePoint{float64(x), median(o.Seconds[""]), o.PeakBytes})
		}
		out = append(out, c)
	}
	return out, nil
}

// growWork prepares a training step of 0.8 M parameters, either on one sequence of n
// tokens or on a group of n responses whose prompt is shared or repeated.
func growWork(kind string, n, threads int) (func() error, error) {
	dev, c, err := open("0.8M", threads)
	if err != nil {
		return nil, err
	}
	long := *c
	long.MaxPositions = max(c.MaxPositions, n)
	m, err := models(dev, &long, trimodel.Config{OldPolicy: loss.Behaviour, Temperature: 1})
	if err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(1, 1))
	var l attention.Layout
	prompt := tokens(rng, 448, c.VocabSize)
	root := 0
	switch {
	case kind == "length":
		ids := tokens(rng, n, c.VocabSize)
		l.AddResponse(l.Add(-1, ids[:1], false), ids[1:])
		n = 0
	case kind == "shared":
		root = l.Add(-1, prompt, false)
	}
	for range n {
		if kind == "repeated" {
			root = l.Add(-1, prompt, false)
		}
		l.AddResponse(root, tokens(rng, 64, c.VocabSize))
	}
	return stepOn(m, &l, dev.Sync), nil
}

// stepOn returns a function that takes one training step. The step raises the log-probability of
// every target of l.
func stepOn(m *trimodel.Models, l *attention.Layout, sync func() error) func() error {
	grad := make([]float32, len(l.Targets)) // of the loss, by log-probability
	for i := range grad {
		grad[i] = -1
	}
	number := 0
	return func() error {
		number++
		if _, err := m.Forward(l, 0); err != nil {
			return err
		}
		if err := m.Backward(backend.Values{backend.Policy: grad}); err != nil {
			return err
		}
		_, err := m.Step(context.Background(),
			backend.Update{Number: number, Scale: 1 / float64(len(grad)), LR: 1e-6, Clip: 1})
		return errors.Join(err, sync())
	}
}
