package evaluate

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/easyrl/easyrl/rollout"
)

// Result is a prompt with its scored responses, a line of a record.
type Result struct {
	Set       string           `json:"set"`
	Index     int              `json:"index"` // in its set, from 0
	PromptID  string           `json:"prompt_id"`
	Prompt    string           `json:"prompt"`
	Question  string           `json:"question,omitempty"` // last message of the user, if the prompt is a chat
	Answer    json.RawMessage  `json:"answer,omitempty"`   // reference answer for the reward
	Source    string           `json:"source,omitempty"`
	Responses []ScoredResponse `json:"responses"`
}

// ScoredResponse is one scored response.
type ScoredResponse struct {
	Text   string             `json:"text"`
	Reward float64            `json:"reward"`
	Right  bool               `json:"right"`            // according to the reward (reward.Score.Right), for pass@k
	Parts  map[string]float64 `json:"parts,omitempty"`  // the reward's components by name
	Answer string             `json:"answer,omitempty"` // found by the reward, in the form in which votes are counted
	Finish rollout.Finish     `json:"finish"`
	Tokens int                `json:"tokens"`
}

// scores holds the part of a Result that the metrics need.
type scores struct {
	values          []float64 // rewards, in the order of the responses
	answers         []string
	parts           []map[string]float64
	right           int // number of right responses
	tokens, clipped int // tokens of all responses; number of responses cut by the length limit
}

// scoresOf returns the scores of a result.
func scoresOf(result *Result) *scores {
	s := &scores{}
	for i := range result.Responses {
		r := &result.Responses[i]
		s.values = append(s.values, r.Reward)
		s.answers = append(s.answers, r.Answer)
		s.parts = append(s.parts, r.Parts)
		if r.Right {
			s.right++
		}
		s.tokens += r.Tokens
		if r.Finish == rollout.Length {
			s.clipped++
		}
	}
	return s
}

// Average is the name of the mean over several sets.
const Average = "average"

// Metrics of a set that are not averaged over sets. Counts of prompts are summed, and
// standard errors are combined.
const (
	prompts = "prompts"  // number of scored prompts
	leftOut = "left_out" // number of prompts that are too long or lack an answer
	failed  = "failed"   // number of prompts whose reward failed
	stdErr  = "stderr"   // standard error of mean@k
)

// metrics returns the metrics of each set and, for several sets, their average.
func (r *run) metrics() map[string]float64 {
	all := map[string]float64{}
	var each []map[string]float64
	for i := range r.sets {
		var got []*scores
		for _, s := range r.results[i] {
			if s != nil {
				got = append(got, s)
			}
		}
		m := setMetrics(got, r.cfg.K)
		m[leftOut], m[failed] = float64(r.sets[i].LeftOut), float64(r.failed[i])
		each = append(each, m)
		add(all, r.sets[i].Name, m)
	}
	if len(each) > 1 {
		add(all, Average, average(each))
	}
	return all
}

// NoneRight reports whether an evaluation of sets with k responses per prompt found no
// right one.
func NoneRight(metrics map[string]float64, sets []Set, k int) bool {
	for i := range sets {
		if metrics[fmt.Sprintf("eval/%s/pass@%d", sets[i].Name, k)] > 0 {
			return false
		}
	}
	return true
}

// counts returns the metrics of a failed evaluation, which has no means.
func (r *run) counts() map[string]float64 {
	all := map[string]float64{}
	for i := range r.sets {
		add(all, r.sets[i].Name, map[string]float64{leftOut: float64(r.sets[i].LeftOut), failed: float64(r.failed[i])})
	}
	return all
}

// add adds the metrics m of a set to all, under their complete names.
func add(all map[string]float64, set string, m map[string]float64) {
	for name, x := range m {
		all["eval/"+set+"/"+name] = x
	}
}

// setMetrics returns the means over a set's prompts, summed in prompt order: mean@k and its
// standard error; pass@ for k and the powers of two below it; maj@ likewise, if the reward
// finds answers; the reward's components; the response length; and the share of responses
// cut by the length limit. pass@ counts right responses (reward.Score.Right); mean@ and
// maj@ use the rewards. Equally common answers share the vote (majMean). With more than
// maxMajResponses responses, maj@k is the only maj@.
func setMetrics(got []*scores, k int) map[string]float64 {
	m := map[string]float64{prompts: float64(len(got))}
	mean := func(name string, each func(s *scores) float64) {
		sum := 0.0
		for _, s := range got {
			sum += each(s)
		}
		m[name] = sum / float64(len(got))
	}
	mean(fmt.Sprintf("mean@%d", k), func(s *scores) float64 { return meanAtK(s.values, k) })
	means := make([]float64, len(got))
	answers := false
	for i, s := range got {
		means[i] = meanAtK(s.values, k)
		answers = answers || slices.ContainsFunc(s.answers, func(a string) bool { return a != "" })
	}
	if e := standardError(means); !math.IsNaN(e) {
		m[stdErr] = e
	}
	for j := 1; j < k; j *= 2 {
		mean(fmt.Sprintf("pass@%d", j), func(s *scores) float64 { return passAtK(k, s.right, j) })
		if answers && j > 1 && k <= maxMajResponses {
			mean(fmt.Sprintf("maj@%d", j), func(s *scores) float64 { return majMean(s.answers, s.values, j) })
		}
	}
	mean(fmt.Sprintf("pass@%d", k), func(s *scores) float64 { return passAtK(k, s.right, k) })
	if answers && k > 1 { // for one response it equals the mean
		mean(fmt.Sprintf("maj@%d", k), func(s *scores) float64 { return majMean(s.answers, s.values, k) })
	}
	mean("response_length", func(s *scores) float64 { return float64(s.tokens) / float64(k) })
	mean("clip_ratio", func(s *scores) float64 { return float64(s.clipped) / float64(k) })
	maps.Copy(m, partMeans(got))
	return m
}

// partMeans returns the means of the reward's components, named <part>/mean, each over the
// responses that have it.
func partMeans(got []*scores) map[string]float64 {
	sums, counts := map[string]float64{}, map[string]float64{}
	for _, s := range got {
		for _, parts := range s.parts {
			for name, x := range parts {
				sums[name] += x
				counts[name]++
			}
		}
	}
	m := map[string]float64{}
	for name, sum := range sums {
		m[name+"/mean"] = sum / counts[name]
	}
	return m
}

// average returns the mean over sets of the metrics that all sets have. Counts of prompts
// are summed. The standard error is that of the mean of independent sets.
func average(each []map[string]float64) map[string]float64 {
	m := map[string]float64{}
	n := float64(len(each))
	for name := range each[0] {
		sum, squares, everywhere := 0.0, 0.0, true
		for _, one := range each {
			x, ok := one[name]
			everywhere = everywhere && ok
			sum += x
			squares += float64(x * x)
		}
		switch {
		case !everywhere:
		case name == prompts || name == leftOut || name == failed:
			m[name] = sum
		case name == stdErr:
			m[name] = math.Sqrt(squares) / n
		default:
			m[name] = sum / n
		}
	}
	return m
}
