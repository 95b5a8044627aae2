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
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/steptime"
)

// Result is what a run was measured to do. Times are means of the timed steps, in
// seconds; a step is taken from the repeat that did it fastest.
type Result struct {
	Name    string         `json:"name"`
	Mode    string         `json:"mode"`
	Value   string         `json:"value,omitempty"` // section.key=value that is swept
	Folders []string       `json:"folders"`         // one a repeat, those that failed left out
	Cores   int            `json:"cores"`
	Share   steptime.Split `json:"share"`
	Steps   int            `json:"steps"`
	Timed   int            `json:"timed"`   // of these
	Seconds float64        `json:"seconds"` // of the timed steps, evaluations and checkpoints aside
	Tokens  float64        `json:"tokens"`  // trained in the timed steps, of prompts and responses
	// Rate is tokens a second a core.
	Rate float64 `json:"tokens_per_second_per_device"`
	// Speedup is over the first run, in tokens a second: a weighted median over the
	// steps of how much faster one was than the same step of the first run.
	Speedup float64 `json:"speedup"`
	Low     float64 `json:"speedup_low"`  // the lower quartile of these
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

	repeats []map[int]report.Values // the timed steps; nil for a repeat that failed
	steps   []report.Values         // with those before the timed ones, for curves
}

// inTurn says that the run trains nothing before its batch is whole.
func (r *Result) inTurn() bool { return r.Mode != configs.PeriodicAsync }

// read fills the result from its folders in dir, one a repeat, but what it has in
// relation to others. It keeps those whose run is finished.
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
		if held, ok := best[int(values["step"])]; ok {
			r.steps[i] = held
		}
	}
	r.last()
	if len(r.Folders) == 0 {
		return nil
	}
	return r.average()
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
func (r *Result) average() error {
	best := fastest(r.repeats)
	if len(best) == 0 {
		return fmt.Errorf("%s has no step to time: more run.steps or a shorter -warmup are needed", r.Folders[0])
	}
	var waited, instances float64
	for _, step := range slices.Sorted(maps.Keys(best)) {
		v := best[step]
		seconds, tokens := v["timing_s/step"], v["tokens/prompt"]+v["tokens/response"]
		r.Seconds += seconds
		r.Tokens += tokens
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
func against(first *Result, results []Result) {
	for i := range results {
		r := &results[i]
		all := r.ratios(first)
		if len(all) == 0 { // they have no timed step in common
			all = []ratio{{r.Tokens / r.Seconds / (first.Tokens / first.Seconds), 1}}
		}
		r.Low, r.Speedup, r.High = quantile(all, 0.25), quantile(all, 0.5), quantile(all, 0.75)
	}
}

// ratio is how much faster a step was than another run's, and how much that tells.
type ratio struct{ faster, weight float64 }

// ratios compare the steps with the same ones of all repeats of first. The pace of
// a machine changes: from minute to minute, so that a ratio tells less the longer
// lies between the two steps; and from step to step, so that one tells less where
// either took longer than it did in another repeat.
func (r *Result) ratios(first *Result) (all []ratio) {
	least, leastFirst := fastest(r.repeats), fastest(first.repeats)
	for _, steps := range r.repeats {
		for step, v := range steps {
			for _, others := range first.repeats {
				base, ok := others[step]
				if !ok || rate(v) == 0 || rate(base) == 0 {
					continue
				}
				calm := least[step]["timing_s/step"] / v["timing_s/step"] * leastFirst[step]["timing_s/step"] / base["timing_s/step"]
				between := max(1e-3, math.Abs(v["time"]-base["time"])) // seconds
				all = append(all, ratio{rate(v) / rate(base), calm * calm / between})
			}
		}
	}
	return all
}

// rate is a step's tokens a second.
func rate(values report.Values) float64 {
	return (values["tokens/prompt"] + values["tokens/response"]) / values["timing_s/step"]
}

// quantile is where the part q of the weights lies below, between two ratios the
// point on the line between them. It sorts all, of which there is one at least.
func quantile(all []ratio, q float64) float64 {
	slices.SortFunc(all, func(a, b ratio) int { return cmp.Compare(a.faster, b.faster) })
	whole := 0.0
	for _, x := range all {
		whole += x.weight
	}
	at, passed := 0.0, 0.0 // the middle of the weight before, and its end
	for i, x := range all {
		middle := passed + x.weight/2
		switch {
		case middle < q*whole:
			at, passed = middle, passed+x.weight
		case i == 0:
			return x.faster
		default:
			return all[i-1].faster + (q*whole-at)/(middle-at)*(x.faster-all[i-1].faster)
		}
	}
	return all[len(all)-1].faster
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

// reached is the step that a run in dir which is resumed goes on from; begun is
// false where there is none.
func reached(dir string) (step int, begun bool) {
	_, step, skipped, err := checkpoint.Latest(filepath.Join(dir, "checkpoints"), checkpoint.StepPrefix)
	if err == nil {
		return step, true
	}
	metrics, err := os.Stat(filepath.Join(dir, report.MetricsFile))
	return 0, len(skipped) > 0 || err == nil && metrics.Size() > 0
}

// round keeps three digits.
func round(x float64) float64 {
	if x == 0 {
		return 0
	}
	scale := math.Pow(10, 2-math.Floor(math.Log10(math.Abs(x))))
	return math.Round(x*scale) / scale
}
