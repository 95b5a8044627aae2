package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// measurement is one row of the table: the same work done by us and by a peer.
type measurement struct {
	name string
	// against names the peer. aim is the target for the ratio or, without a peer, for
	// our seconds.
	against, aim string
	// ours and peer return commands that print an outcome. peer is nil if there is
	// none.
	ours, peer func() *exec.Cmd
}

// outcome is the output of a working process, ours or a peer's.
type outcome struct {
	// Seconds holds the time of each iteration but the first, by part of the work. Work
	// without parts has the key "".
	Seconds map[string][]float64 `json:"seconds"`
	Version string               `json:"version,omitempty"` // of the peer's package
	// PeakBytes is the process's peak resident memory, as measured from outside.
	PeakBytes int64 `json:"peak_bytes"`
}

// result is a measured row.
type result struct {
	Name    string             `json:"name"`
	Against string             `json:"against,omitempty"`
	Aim     string             `json:"aim,omitempty"`
	Ratio   float64            `json:"ratio,omitempty"`  // median over rounds of peer's time / our time
	Rounds  []float64          `json:"rounds,omitempty"` // ratio of each round: the geometric mean of its parts' ratios
	Parts   map[string]float64 `json:"parts,omitempty"`  // ratio of each part of the work
	Ours    []outcome          `json:"ours"`
	Peer    []outcome          `json:"peer,omitempty"`
	Memory  float64            `json:"memory,omitempty"` // our peak / peer's peak
}

// measurements returns all rows. They use 2 threads, except that the matrix products use 1. peers
// is the folder of the peers' scripts.
func measurements(peers string) []measurement {
	self := func(args ...string) func() *exec.Cmd {
		return func() *exec.Cmd { return exec.Command("/proc/self/exe", append([]string{"work"}, args...)...) }
	}
	python := func(script string, args ...string) func() *exec.Cmd {
		return func() *exec.Cmd {
			return exec.Command(filepath.Join(peers, "venv/bin/python"),
				append([]string{filepath.Join(peers, script)}, args...)...)
		}
	}
	torch := func(name, aim string, n int, args ...string) measurement {
		args = append(args, "2", strconv.Itoa(n))
		return measurement{name, "PyTorch", aim, self(args...), python("torch_work.py", args...)}
	}
	compiled := func(name string, n int, kind, model string) measurement {
		rest := []string{model, "2", strconv.Itoa(n)}
		return measurement{name, "torch.compile", "", self(append([]string{kind}, rest...)...),
			python("torch_work.py", append([]string{kind + "-compiled"}, rest...)...)}
	}
	gemm := func(name, which, primitive, aim string) measurement {
		peer := func() *exec.Cmd {
			cmd := exec.Command(filepath.Join(peers, "gemm"), primitive, which)
			cmd.Env = append(os.Environ(), "OMP_NUM_THREADS=1")
			return cmd
		}
		return measurement{name, "oneDNN " + primitive, aim, self("gemm", which, "1", "20"), peer}
	}
	torchPython := filepath.Join(peers, "venv/bin/python")
	step := func(name, kind, aim, trainer string, n int) measurement {
		return measurement{name, "TRL", aim, self(kind, trainer, "2", strconv.Itoa(n)),
			python("trl_step.py", kind, "2", strconv.Itoa(n))}
	}
	overhead := func(instances string) measurement {
		return measurement{name: "overhead of 4096 groups, " + instances + " instances", aim: "< 0.205",
			ours: self("overhead", instances, "2", "20")}
	}
	return []measurement{
		gemm("matrix products", "all", "sgemm", "> 0.95"),
		gemm("matrix products, M <= 32", "small", "sgemm", "> 1.3"),
		gemm("matrix products", "all", "matmul", ""),
		torch("train 0.8M, 64 x 64", "> 1.5", 20, "train", "0.8M"),
		compiled("train 0.8M, 64 x 64", 20, "train", "0.8M"),
		torch("train 25M, 8 x 512", "> 1.1", 8, "train", "25M"),
		compiled("train 25M, 8 x 512", 8, "train", "25M"),
		torch("group 25M, 448 + 8 x 32..96", "> 3.5", 6, "grpo", "25M"),
		torch("generate 0.8M, 64 x 8 x 64", "> 8", 6, "generate", "0.8M"),
		torch("generate 25M, 64 x 8 x 64", "> 2", 2, "generate", "25M"),
		step("quickstart step", "quickstart", "> 6", ownKernels, 8),
		step("quickstart step, PyTorch ranks", "quickstart", "> 1", torchPython, 8),
		step("step 25M, 2 x (448 + 8 x 96)", "long", "", ownKernels, 2),
		step("step 25M, 2 x (448 + 8 x 96), PyTorch ranks", "long", "> 2.5", torchPython, 2),
		overhead("1"), overhead("64"), overhead("1000"),
		{name: "start to the first group, quickstart", aim: "< 0.5", ours: self("start", "-", "2", "5")},
	}
}

// measure alternates between the two sides, rounds times. If the peer is not installed, the result
// has our figures of one round.
func (m *measurement) measure(rounds int) (result, error) {
	r := result{Name: m.name, Against: m.against, Aim: m.aim}
	parts := map[string][]float64{}
	var memory []float64
	for range rounds {
		ours, err := runSide(m.ours())
		if err != nil {
			return r, err
		}
		r.Ours = append(r.Ours, ours)
		if m.peer == nil {
			continue
		}
		peer, err := runSide(m.peer())
		if errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(os.Stderr, "  %s is not installed; run bench/peers/setup\n", m.against)
			return r, nil
		}
		if err != nil {
			return r, err
		}
		r.Peer = append(r.Peer, peer)
		logRatio := 0.0 // mean over parts
		for name, seconds := range ours.Seconds {
			ratio := warm(peer.Seconds[name]) / warm(seconds)
			parts[name] = append(parts[name], ratio)
			logRatio += math.Log(ratio) / float64(len(ours.Seconds))
		}
		r.Rounds = append(r.Rounds, math.Exp(logRatio))
		memory = append(memory, float64(ours.PeakBytes)/float64(peer.PeakBytes))
	}
	if len(r.Rounds) == 0 {
		return r, nil
	}
	r.Ratio, r.Memory = median(r.Rounds), median(memory)
	if len(parts) > 1 {
		r.Parts = map[string]float64{}
		for name, ratios := range parts {
			r.Parts[name] = median(ratios)
		}
	}
	return r, nil
}

// runSide runs a process, reads its outcome from the last line of its output and measures its peak
// memory.
func runSide(cmd *exec.Cmd) (outcome, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return outcome{}, fmt.Errorf("%s: %w: %s", cmd, err, lastLine(stderr.Bytes()))
	}
	var o outcome
	if err := json.Unmarshal(lastLine(stdout.Bytes()), &o); err != nil {
		return outcome{}, fmt.Errorf("%s: %w", cmd, err)
	}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		o.PeakBytes = max(o.PeakBytes, usage.Maxrss*1024)
	}
	return o, nil
}

// lastLine returns the last line of b that is not blank.
func lastLine(b []byte) []byte {
	b = bytes.TrimSpace(b)
	return b[bytes.LastIndexByte(b, '\n')+1:]
}

// warm returns the median of the later half of the iterations, because an allocator may take
// several to settle.
func warm(seconds []float64) float64 { return median(seconds[len(seconds)/2:]) }

// median returns the median of xs, or NaN if xs is empty. It does not modify xs.
func median(xs []float64) float64 {
	if len(xs) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(xs))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
