package compare

import (
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
	"github.com/easyrl/easyrl/report"
)

// Result is what a run was measured to do. Times are means of the timed steps, in
// seconds; a step is taken from the repeat that did it fastest.
type Result struct {
	Name    string   `json:"name"`
	Mode    string   `json:"mode"`
	Value   string   `json:"value,omitempty"` // section.key=value that is swept
	Folders []string `json:"folders"`         // one a repeat
	Cores   int      `json:"cores"`
	Share   Share    `json:"share"`
	Steps   int      `json:"steps"`
	Timed   int      `json:"timed"`   // of these
	Seconds float64  `json:"seconds"` // of the timed steps, evaluations and checkpoints aside
	Tokens  float64  `json:"tokens"`  // trained in the timed steps, of prompts and responses
	// Rate is tokens a second a core.
	Rate    float64 `json:"tokens_per_second_per_device"`
	Speedup float64 `json:"speedup"`      // over the first run, in tokens a second
	Low     float64 `json:"speedup_low"`  // the lower quartile of the steps' speed-ups
	High    float64 `json:"speedup_high"` // the upper one
	Step    float64 `json:"step"`
	// Sampling is Ti: the time in which the instances have requests. In a mode that
	// waits for the whole batch it is all that the trainer waits, scoring included.
	Sampling float64 `json:"ti"`
	Training float64 `json:"tt"`          // Tt: forward, backward and the optimizer
	First    float64 `json:"first_group"` // until the trainer has its first group
	Rest     float64 `json:"rest"`        // publishing, and what is neither waiting nor training
	// Ceiling is (Ti+Tt)/max(Ti,Tt): how much faster than one after the other the
	// two could be if all of the shorter were hidden behind the longer.
	Ceiling       float64            `json:"ceiling"`
	IdleTrainer   float64            `json:"idle_trainer"` // of the step
	IdleInstances float64            `json:"idle_instances"`
	Servers       float64            `json:"fleet"`  // instances that sampled, servers included
	Reward        *float64           `json:"reward"` // of the last step
	Eval          map[string]float64 `json:"eval,omitempty"`
	Weights       string             `json:"weights"` // sha256 of what the run ended with; of the first repeat that differs too
	PeakBytes     float64            `json:"peak_bytes"`

	rates map[int]float64 // tokens a second of each timed step
	steps []report.Values // with those before the timed ones, for curves
}

// inTurn says that the run trains nothing before its batch is whole.
func (r *Result) inTurn() bool { return r.Mode != configs.PeriodicAsync }

// read fills the result from its folders in dir, but what it has in relation to
// others.
func (r *Result) read(dir string, warmup int, resumed map[string][]int) error {
	var repeats, everything []map[int]report.Values
	for i, folder := range r.Folders {
		steps, err := report.ReadMetrics(filepath.Join(dir, folder, report.MetricsFile))
		if err != nil {
			return err
		}
		weights, ok := finalWeights(filepath.Join(dir, folder), r.Steps)
		if !ok {
			return fmt.Errorf("%s has no whole checkpoint of step %d", filepath.Join(dir, folder), r.Steps)
		}
		everything = append(everything, timed(steps, 0, nil))
		if i == 0 {
			r.steps, r.Weights = steps, weights
		} else if weights != r.Weights {
			r.Weights += " " + weights
		}
		repeats = append(repeats, timed(steps, warmup, resumed[folder]))
	}
	best := fastest(everything)
	for i, values := range r.steps {
		if held, ok := best[int(values["step"])]; ok {
			r.steps[i] = held
		}
	}
	r.last()
	return r.average(repeats)
}

// timed are the steps behind the first ones of each process.
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

// average takes each step from the repeat that did it fastest, since whatever
// disturbs a machine slows it, and sums the steps.
func (r *Result) average(repeats []map[int]report.Values) error {
	best := fastest(repeats)
	if len(best) == 0 {
		return fmt.Errorf("%s has no step to time: more run.steps or a shorter -warmup are needed", r.Folders[0])
	}
	var waited, instances float64
	r.rates = map[int]float64{}
	for _, step := range slices.Sorted(maps.Keys(best)) {
		v := best[step]
		seconds, tokens := v["timing_s/step"], v["tokens/prompt"]+v["tokens/response"]
		r.Seconds += seconds
		r.Tokens += tokens
		r.rates[step] = tokens / seconds
		waited += v["timing_s/wait"]
		r.Training += v["timing_s/train"] + v["timing_s/optimizer"]
		r.First += v["timing_s/first_group"]
		r.Sampling += v["timing_s/sample"]
		instances += v["idle/instances"] * seconds
		r.Servers = v["fleet/size"]
		r.PeakBytes = max(r.PeakBytes, v["memory/peak_bytes"])
	}
	if r.inTurn() {
		r.Sampling = waited
	}
	r.Timed = len(best)
	n := float64(r.Timed)
	r.Rate = r.Tokens / r.Seconds / float64(r.Cores)
	r.IdleTrainer, r.IdleInstances = waited/r.Seconds, instances/r.Seconds
	r.Step, r.Sampling, r.Training, r.First = r.Seconds/n, r.Sampling/n, r.Training/n, r.First/n
	r.Rest = max(0, r.Step-waited/n-r.Training)
	r.Ceiling = (r.Sampling + r.Training) / max(r.Sampling, r.Training)
	return nil
}

// fastest are the steps, each of the repeat that did it fastest.
func fastest(repeats []map[int]report.Values) map[int]report.Values {
	best := map[int]report.Values{}
	for _, steps := range repeats {
		for step, values := range steps {
			if held, ok := best[step]; !ok || values["timing_s/step"] < held["timing_s/step"] {
				best[step] = values
			}
		}
	}
	return best
}

// last takes the reward of the last step and the last evaluation.
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

// against sets what results are in relation to first.
func against(first Result, results []Result) {
	for i := range results {
		r := &results[i]
		r.Speedup = r.Tokens / r.Seconds / (first.Tokens / first.Seconds)
		var ratios []float64
		for step, rate := range r.rates {
			if base, ok := first.rates[step]; ok {
				ratios = append(ratios, rate/base)
			}
		}
		r.Low, r.High = quantile(ratios, 0.25), quantile(ratios, 0.75)
	}
}

// quantile interpolates between xs, which it sorts; it is 0 of none.
func quantile(xs []float64, q float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	slices.Sort(xs)
	at := q * float64(len(xs)-1)
	low := int(at)
	high := min(low+1, len(xs)-1)
	return xs[low] + (at-float64(low))*(xs[high]-xs[low])
}

// finalWeights is the sum of the weights in the checkpoint of a run's last step;
// ok is false where there is none that is whole.
func finalWeights(dir string, step int) (sum string, ok bool) {
	at := filepath.Join(dir, "checkpoints", checkpoint.StepName(step))
	if checkpoint.Verify(at) != nil {
		return "", false
	}
	entries, err := os.ReadDir(at)
	if err != nil {
		return "", false
	}
	digest := sha256.New()
	for _, entry := range entries { // by name
		if filepath.Ext(entry.Name()) != ".safetensors" {
			continue
		}
		ok = true
		if err := digestFile(digest, filepath.Join(at, entry.Name())); err != nil {
			return "", false
		}
	}
	return hex.EncodeToString(digest.Sum(nil)), ok
}

func digestFile(w io.Writer, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	_, err = io.Copy(w, file)
	return err
}

// lastCheckpoint is the step that a run which is resumed goes on from.
func lastCheckpoint(dir string) (step int, ok bool) {
	_, step, _, err := checkpoint.Latest(filepath.Join(dir, "checkpoints"), checkpoint.StepPrefix)
	return step, err == nil
}

// round keeps three digits.
func round(x float64) float64 {
	if x == 0 {
		return 0
	}
	scale := math.Pow(10, 2-math.Floor(math.Log10(math.Abs(x))))
	return math.Round(x*scale) / scale
}
