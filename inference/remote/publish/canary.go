package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/easyrl/easyrl/inference"
)

// CanaryTokens is the usual length of a canary's prompt.
const CanaryTokens = 32

const (
	// perturbedError limits a server's error under perturbed weights, in nats. Arithmetic in
	// bfloat16 gave 0.01 to 0.06, with 1 to 80 layers; one stale tensor gave 0.2 or more in
	// 5 layers and 0.09 or more in 28.
	perturbedError = 0.1
	// medianError limits the median error under the first true version, in nats. A few
	// unlikely tokens carry most of the effect of lower precision: with all weights rounded
	// to bfloat16, the median was 0.0002 to 0.039.
	medianError = 0.05
	// A server's error, relative to the spread of the log-probabilities, is about the same
	// under all weights. Under the first true version it may be up to errorRise times as large
	// as under perturbed weights, and up to errorDrop times as small.
	errorRise, errorDrop = 10, 30
	// Under later versions it may be errorGrowth times as large. Two versions differ measurably
	// if the trainer's log-probabilities moved by more than measurable times the error.
	errorGrowth, measurable = 5, 3
	// exactness is the smallest error, relative to the spread, that an engine in float32 is
	// expected to reach, and resolution the smallest one in nats.
	exactness, resolution = 2e-6, 2e-6
)

// Canary verifies that a server computes with the weights that it claims to hold. It
// compares the log-probabilities of a prompt with the trainer's.
//
// A server is first tested with perturbed weights, in which every tensor has other values
// than in any version. One tensor that such an update does not reach changes the
// log-probabilities by several times the error of arithmetic in bfloat16, whatever the
// tensor and the values that the server keeps; only with 28 layers and more may a tensor
// of the last layers' attention change them less. Under the first true version, the
// server's error relative to the spread of the log-probabilities must be about the same.
// In float32 this finds any tensor with an effect above 0.0001 nats. In bfloat16 a tensor
// that took the perturbed values and keeps them is found if the policy depends on it.
//
// Under each later version the error must remain near that of the first ones. The server
// must also be nearer to the new version than to the last one from which the new one
// differs measurably. So an update that does not arrive, wholly or in part, is found when
// its effect, added up over versions, exceeds five times the server's error: in float32
// after one step, even with a learning rate of 1e-6; in bfloat16 when the policy has moved
// by some 0.1 nats. An effect below that is not found.
//
// Several instances may share a canary.
type Canary struct {
	// Prompt usually has CanaryTokens tokens, as likely as possible.
	Prompt []int32
	// Logprobs returns the trainer's natural log-probabilities under the version being
	// published. Entry i is log p(Prompt[i] | Prompt[:i]); entry 0 is ignored. It may be
	// called concurrently.
	Logprobs func(ctx context.Context, version int64) ([]float32, error)
	// Perturb returns perturbed weights. It may be called concurrently.
	Perturb func(ctx context.Context) (*Perturbed, error)
}

// Perturbed are weights in which every tensor has other values than in any version. They
// have version 0, and a checksum of their own.
type Perturbed struct {
	inference.Weights
	Prompt   []int32   // usually spread over the vocabulary
	Logprobs []float32 // the trainer's, as Canary.Logprobs returns them
	// Limit is the largest error of a server that holds the weights, in nats, as the root of the
	// mean square. 0 means perturbedError.
	Limit float64
	Free  func() // frees the weights
}

// Validate reports the first fault of c.
func (c *Canary) Validate() error {
	switch {
	case len(c.Prompt) < 2:
		return fmt.Errorf("canary: prompt has %d tokens, expected %d", len(c.Prompt), CanaryTokens)
	case c.Logprobs == nil:
		return errors.New("canary: no source of the trainer's log-probabilities")
	case c.Perturb == nil:
		return errors.New("canary: no source of perturbed weights")
	}
	return nil
}

// Sampler makes one exchange: req.N responses of up to limit tokens each. The server may
// have aborted some.
type Sampler func(ctx context.Context, req inference.Request, limit int) ([]inference.Completion, error)

// ErrWeights marks log-probabilities that show other weights than a server claims to hold.
var ErrWeights = errors.New("the server computes with other weights")

// Record is what a Canary knows of a server. It does not change.
type Record struct {
	noise   float64   // the server's error, relative to the spread of the log-probabilities
	version int64     // the last version from which newer ones differ measurably; 0 before the first
	trainer []float32 // its log-probabilities
}

// First looks at a server that holds p and returns its first record.
func (c *Canary) First(ctx context.Context, p *Perturbed, sample Sampler) (*Record, error) {
	s, err := compare(ctx, p.Prompt, p.Logprobs, sample)
	if err != nil {
		return nil, err
	}
	limit := cmp.Or(p.Limit, perturbedError)
	if off := distance(s.server, s.trainer); !(off <= limit) {
		return nil, fmt.Errorf("under perturbed weights, log-probabilities differ from the trainer's by %.2g, "+
			"expected at most %.2g: an update does not reach every tensor: %w", off, limit, ErrWeights)
	}
	return &Record{noise: s.noise()}, nil
}

// Next looks at a server that holds a version and returns its next record. last is the one
// before.
func (c *Canary) Next(ctx context.Context, version int64, last *Record, sample Sampler) (*Record, error) {
	want, err := c.Logprobs(ctx, version)
	if err != nil {
		return nil, fmt.Errorf("canary: trainer: %w", err)
	}
	s, err := compare(ctx, c.Prompt, want, sample)
	if err != nil {
		return nil, err
	}
	if last.version == 0 {
		return s.first(version, last.noise)
	}
	return s.next(version, last)
}

// comparison holds the log-probabilities of a prompt from trainer and server.
type comparison struct{ trainer, server []float32 }

// compare samples the prompt and compares its log-probabilities with want, the trainer's.
func compare(ctx context.Context, prompt []int32, want []float32, sample Sampler) (*comparison, error) {
	if len(want) != len(prompt) {
		return nil, fmt.Errorf("canary: trainer returned %d log-probabilities for %d tokens", len(want), len(prompt))
	}
	out, err := sample(ctx, inference.Request{
		PromptIDs: prompt, N: 1, PromptLogprobs: true,
		Sampling: inference.Sampling{Temperature: 1, TopP: 1, MaxTokens: 1},
	}, 1)
	if err != nil {
		return nil, fmt.Errorf("canary: %w", err)
	}
	return &comparison{slices.Clone(want[1:]), slices.Clone(out[0].PromptLogprobs[1:])}, nil
}

// first judges the first true version. noise is that under perturbed weights.
func (c *comparison) first(version int64, noise float64) (*Record, error) {
	median, off, spread := c.median(), distance(c.server, c.trainer), spread(c.trainer)
	now := c.noise()
	switch {
	case !(median <= medianError):
		return nil, fmt.Errorf(
			"log-probabilities of version %d differ from the trainer's by %.2g in the median, expected at most %v: %w",
			version, median, medianError, ErrWeights)
	case spread == 0: // the policy ignores its input
	case now > errorRise*noise:
		return nil, fmt.Errorf(
			"log-probabilities of version %d differ from the trainer's by %.2g, expected at most %.2g: %w", version,
			off, errorRise*noise*spread, ErrWeights)
	case noise > errorDrop*now:
		return nil, fmt.Errorf("log-probabilities of version %d differ from the trainer's by %.2g, but those under "+
			"perturbed weights by %.2g times as much: an update does not reach every tensor: %w", version, off,
			noise/now, ErrWeights)
	default:
		noise = max(noise, now)
	}
	return &Record{noise, version, c.trainer}, nil
}

// next judges a version after the first.
func (c *comparison) next(version int64, last *Record) (*Record, error) {
	off, old := distance(c.server, c.trainer), distance(c.server, last.trainer)
	limit := float64(last.noise*spread(c.trainer)) + resolution
	moved := distance(c.trainer, last.trainer) > measurable*limit
	switch {
	case moved && !(off < old):
		return nil, fmt.Errorf("log-probabilities are nearer to those of version %d (%.2g) than to those of version "+
			"%d (%.2g): an update did not arrive: %w",
			last.version, old, version, off, ErrWeights)
	case !(off <= errorGrowth*limit):
		return nil, fmt.Errorf("log-probabilities of version %d differ from the trainer's by %.2g, expected at most "+
			"%.2g, %d times the server's own error: part of an update did not arrive: %w",
			version, off, errorGrowth*limit, errorGrowth, ErrWeights)
	case moved:
		return &Record{last.noise, version, c.trainer}, nil
	}
	return last, nil
}

// noise returns the error relative to the spread.
func (c *comparison) noise() float64 {
	return max(distance(c.server, c.trainer)/spread(c.trainer), exactness)
}

// median returns the median difference; of an even number, the upper one. It is NaN if any
// difference is.
func (c *comparison) median() float64 {
	all := make([]float64, len(c.trainer))
	for i := range all {
		all[i] = math.Abs(float64(c.server[i]) - float64(c.trainer[i]))
	}
	slices.Sort(all)
	if math.IsNaN(all[0]) {
		return all[0]
	}
	return all[len(all)/2]
}

// Distance returns the root of the mean squared difference of two prompts' log-probabilities.
// It ignores entry 0.
func Distance(a, b []float32) float64 { return distance(a[1:], b[1:]) }

// distance returns the root of the mean squared difference.
func distance(a, b []float32) float64 {
	sum := 0.0
	for i := range a {
		d := float64(a[i]) - float64(b[i])
		sum += float64(d * d)
	}
	return math.Sqrt(sum / float64(len(a)))
}

// spread returns the standard deviation.
func spread(a []float32) float64 {
	mean := 0.0
	for _, v := range a {
		mean += float64(v) / float64(len(a))
	}
	sum := 0.0
	for _, v := range a {
		sum += float64((float64(v) - mean) * (float64(v) - mean))
	}
	return math.Sqrt(sum / float64(len(a)))
}
