package compare

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/internal/filetype"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/steptime"
)

// Result holds the measurements of a variant. Times are means over the timed steps, in
// seconds. Each step comes from the repeat that ran it fastest.
type Result struct {
	Name    string         `json:"name"`
	Mode    string         `json:"mode"`
	Value   string         `json:"value,omitempty"` // swept section.key=value
	Folders []string       `json:"folders"`         // one per repeat that finished
	Cores   int            `json:"cores"`           // of its process and of the servers that sampled
	Share   steptime.Split `json:"share"`
	Steps   int            `json:"steps"`
	Timed   int            `json:"timed"`   // number of timed steps
	Seconds float64        `json:"seconds"` // of the timed steps, without evaluations and checkpoints
	Tokens  float64        `json:"tokens"`  // prompt and response tokens trained in the timed steps
	// Rate is tokens per second per core.
	Rate float64 `json:"tokens_per_second_per_device"`
	// Speedup is the gain in tokens per second over the first run: the weighted median over
	// the steps of the ratio to the same step of the first run.
	Speedup float64 `json:"speedup"`
	Low     float64 `json:"speedup_low"`  // lower quartile of the ratios
	High    float64 `json:"speedup_high"` // upper quartile of the ratios
	Step    float64 `json:"step"`
	// Sampling is Ti, the time in which the instances have requests. In a mode that waits
	// for the whole batch it is the trainer's whole wait, scoring included.
	Sampling float64 `json:"ti"`
	Training float64 `json:"tt"` // Tt: forward, backward and optimizer
	// Ceiling is (Ti+Tt)/max(Ti,Tt), the speedup over sequential execution if the longer
	// phase hid the shorter one completely.
	Ceiling       float64 `json:"ceiling"`
	IdleTrainer   float64 `json:"idle_trainer"` // fraction of the step
	IdleInstances float64 `json:"idle_instances"`
	// Servers is the number of instances that sampled, embedded ones included.
	Servers     float64            `json:"fleet"`
	ServerCores int                `json:"server_cores,omitempty"` // of Cores; servers that report none count 0
	Reward      *float64           `json:"reward"`                 // at the last step
	Eval        map[string]float64 `json:"eval,omitempty"`
	Weights     string             `json:"weights"` // sha256 of the final weights, one for each distinct repeat
	PeakBytes   float64            `json:"peak_bytes"`

	repeats []map[int]report.Values // timed steps by number; nil for a failed repeat
	steps   []report.Values         // all steps, for the curves
}

// inTurn reports whether the run trains only after its whole batch is sampled.
func (r *Result) inTurn() bool { return r.Mode != configs.PeriodicAsync }

// read fills the result from its folders in dir, one per repeat, except for what depends
// on other results. It keeps only the folders of finished runs.
func (r *Result) read(dir string, warmup int, resumed map[string][]int) error {
	var everything []map[int]report.Values
	folders := r.Folders
	r.Folders = nil
	for _, folder := range folders {
		weights, ok := finalWeights(filepath.Join(dir, folder), r.Steps)
		if !ok {
			r.repeats = append(r.repeats, nil)
			continue
		}
		steps, err := report.ReadMetrics(filepath.Join(dir, folder, report.MetricsFile))
		if err != nil {
			return err
		}
		everything = append(everything, timed(steps, 0, nil))
		if len(r.Folders) == 0 {
			r.steps, r.Weights = steps, weights
		} else if weights != r.Weights {
			r.Weights += " " + weights
		}
		r.Folders = append(r.Folders, folder)
		r.repeats = append(r.repeats, timed(steps, warmup, resumed[folder]))
	}
	best := fastest(everything)
	for i, values := range r.steps {
		if known, ok := best[int(values["step"])]; ok {
			r.steps[i] = known
		}
	}
	r.last()
	if len(r.Folders) == 0 {
		return nil
	}
	return r.average()
}

// timed returns the steps after the warm-up of each process, by number.
func timed(steps []report.Values, warmup int, resumed []int) map[int]report.Values {
	out := map[int]report.Values{}
	for _, values := range steps {
		step := int(values["step"])
		warms := func(began int) bool { return step > began && step <= began+warmup }
		if values["timing_s/step"] > 0 && !warms(0) && !slices.ContainsFunc(resumed, warms) {
			out[step] = values
		}
	}
	return out
}

// average picks each step from the repeat that ran it fastest, because disturbances only
// slow a step down, and averages the steps.
func (r *Result) average() error {
	best := fastest(r.repeats)
	if len(best) == 0 {
		return fmt.Errorf("%s has no step to time; raise run.steps or lower -warmup", r.Folders[0])
	}
	var waited, instances float64
	served := 0
	for _, step := range slices.Sorted(maps.Keys(best)) {
		v := best[step]
		seconds, tokens := v["timing_s/step"], v["tokens/prompt"]+v["tokens/response"]
		r.Seconds += seconds
		r.Tokens += tokens
		waited += v["timing_s/wait"]
		r.Training += v["timing_s/train"] + v["timing_s/optimizer"]
		r.Sampling += v["timing_s/sample"]
		instances += v["idle/instances"] * seconds
		r.Servers = v["fleet/size"]
		served = max(served, int(v["perf/cores"])-min(r.Share.Threads(), r.Cores))
		r.PeakBytes = max(r.PeakBytes, v["memory/peak_bytes"])
	}
	if r.inTurn() {
		r.Sampling = waited
	}
	r.ServerCores = served
	r.Cores += served
	r.Timed = len(best)
	n := float64(r.Timed)
	r.Rate = r.Tokens / r.Seconds / float64(r.Cores)
	r.IdleTrainer, r.IdleInstances = waited/r.Seconds, instances/r.Seconds
	r.Step, r.Sampling, r.Training = r.Seconds/n, r.Sampling/n, r.Training/n
	r.Ceiling = (r.Sampling + r.Training) / max(r.Sampling, r.Training)
	return nil
}

// fastest returns, for each step, its values in the repeat that ran it fastest.
func fastest(repeats []map[int]report.Values) map[int]report.Values {
	best := map[int]report.Values{}
	for _, steps := range repeats {
		for step, values := range steps {
			if known, ok := best[step]; !ok || values["timing_s/step"] < known["timing_s/step"] {
				best[step] = values
			}
		}
	}
	return best
}

// last sets the reward of the last step and the results of the last evaluation.
func (r *Result) last() {
	for _, values := range r.steps {
		if x, ok := values["reward/mean"]; ok {
			r.Reward = &x
		}
		for name, x := range values {
			if strings.HasPrefix(name, "eval/") && strings.Contains(name, "@") {
				if r.Eval == nil {
					r.Eval = map[string]float64{}
				}
				r.Eval[name] = x
			}
		}
	}
}

// against sets the results' speedups over first.
func against(first *Result, results []Result) {
	for i := range results {
		r := &results[i]
		all := r.ratios(first)
		if len(all) == 0 { // no timed step in common
			all = []ratio{{r.Tokens / r.Seconds / (first.Tokens / first.Seconds), 1}}
		}
		r.Low, r.Speedup, r.High = quantile(all, 0.25), quantile(all, 0.5), quantile(all, 0.75)
	}
}

// ratio is the speed of a step relative to another run's, and its weight.
type ratio struct{ faster, weight float64 }

// ratios compares each step with the same step of all repeats of first. A machine's speed
// drifts over minutes, so a ratio weighs less the further apart in time its two steps
// are. It also varies between steps, so a ratio weighs less if either step took longer
// than in another repeat.
func (r *Result) ratios(first *Result) (all []ratio) {
	best, bestFirst := fastest(r.repeats), fastest(first.repeats)
	for _, steps := range r.repeats {
		for step, v := range steps {
			for _, others := range first.repeats {
				base, ok := others[step]
				if !ok || rate(v) == 0 || rate(base) == 0 {
					continue
				}
				const key = "timing_s/step"
				// 1 if both steps are the fastest of their repeats, and less if either was slowed down
				undisturbed := best[step][key] / v[key] * bestFirst[step][key] / base[key]
				apart := max(1e-3, math.Abs(v["time"]-base["time"])) // seconds
				all = append(all, ratio{rate(v) / rate(base), undisturbed * undisturbed / apart})
			}
		}
	}
	return all
}

// rate returns a step's tokens per second.
func rate(values report.Values) float64 {
	return (values["tokens/prompt"] + values["tokens/response"]) / values["timing_s/step"]
}

// quantile returns the weighted quantile q of the ratios, interpolated linearly. It sorts
// all, which must not be empty.
func quantile(all []ratio, q float64) float64 {
	slices.SortFunc(all, func(a, b ratio) int { return cmp.Compare(a.faster, b.faster) })
	total := 0.0
	for _, x := range all {
		total += x.weight
	}
	// Each ratio is at the middle of its weight's interval of [0, total].
	previous, end := 0.0, 0.0 // middle and end of the previous interval
	for i, x := range all {
		middle := end + x.weight/2
		switch {
		case middle < q*total:
			previous, end = middle, end+x.weight
		case i == 0:
			return x.faster
		default:
			return all[i-1].faster + (q*total-previous)/(middle-previous)*(x.faster-all[i-1].faster)
		}
	}
	return all[len(all)-1].faster
}

// finalWeights returns the sha256 of the weights in the checkpoint of a run's last step.
// ok is false if there is no valid checkpoint.
func finalWeights(dir string, step int) (sum string, ok bool) {
	folder := filepath.Join(dir, "checkpoints", checkpoint.StepName(step))
	if checkpoint.Verify(folder) != nil {
		return "", false
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return "", false
	}
	digest := sha256.New()
	for _, entry := range entries { // sorted by name
		if filepath.Ext(entry.Name()) != ".safetensors" {
			continue
		}
		ok = true
		if err := digestFile(digest, filepath.Join(folder, entry.Name())); err != nil {
			return "", false
		}
	}
	return hex.EncodeToString(digest.Sum(nil)), ok
}

// digestFile writes the contents of a file to w.
func digestFile(w io.Writer, path string) error {
	file, err := filetype.Open(path)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // opened for reading only
	_, err = io.Copy(w, file)
	return err
}

// reached returns the step after which the run in dir resumes. begun is false if the run
// has not started.
func reached(dir string) (step int, begun bool) {
	_, step, skipped, err := checkpoint.Latest(filepath.Join(dir, "checkpoints"))
	if err == nil {
		return step, true
	}
	metrics, err := os.Stat(filepath.Join(dir, report.MetricsFile))
	return 0, len(skipped) > 0 || err == nil && metrics.Size() > 0
}

// round rounds to three significant digits.
func round(x float64) float64 {
	if x == 0 {
		return 0
	}
	scale := math.Pow(10, 2-math.Floor(math.Log10(math.Abs(x))))
	return math.Round(x*scale) / scale
}
