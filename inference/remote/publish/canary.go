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
	// perturbedError limits a server's error under perturbed weights, in nats. Measured: arithmetic
	// in bfloat16 gave 0.01 to 0.06, with 1 to 80 layers; one stale tensor gave 0.2 or more in
	// 5 layers and 0.09 or more in 28.
	perturbedError = 0.1
	// medianError limits the median error under the first true version, in nats. A few
	// unlikely tokens carry most of the effect of lower precision: with all weights rounded
	// to bfloat16, the median was 0.0002 to 0.039.
	medianError = 0.05

	// A server's noise, its error relative to the spread of the log-probabilities, is about the
	// same under all weights.

	// errorRise limits how much larger the noise may be under the first true version than under
	// perturbed weights, as a factor.
	errorRise = 10
	// errorDrop limits how much smaller the noise may be under the first true version than under
	// perturbed weights, as a factor.
	errorDrop = 30
	// errorGrowth limits the error under later versions, as a multiple of what the noise predicts.
	errorGrowth = 5
	// measurable is the distance of the trainer's log-probabilities under two versions, as a multiple
	// of the error that the noise predicts, above which the versions differ measurably.
	measurable = 3
	// exactness is the smallest noise that an engine in float32 is expected to have.
	exactness = 2e-6
	// resolution is the smallest error in nats that an engine in float32 is expected to have.
	resolution = 2e-6
)

// Canary verifies that a server computes with the weights that it claims to hold. It
// compares the log-probabilities of a prompt with the trainer's. The error is the root of the mean
// squared difference, in nats. The noise is the error divided by the spread (the standard deviation)
// of the trainer's log-probabilities.
//
// First verifies a server under perturbed weights, in which every tensor has other values than in any
// version. If the update does not reach a tensor, the log-probabilities change by several times the
// error of arithmetic in bfloat16, whichever the tensor and the values that the server keeps. The
// exception is a tensor of the last layers' attention in a model of 28 layers or more, which may
// change them less.
//
// Next verifies a server under each version. Under the first, the noise must be about that under
// perturbed weights. In float32 this finds a stale tensor with an effect above 0.0001 nats. In
// bfloat16 it finds a tensor that keeps the perturbed values if the policy depends on the tensor.
//
// Under each later version, the error must remain near what the noise predicts. The server must also
// be nearer to the new version than to the last version from which the new one differs measurably. An
// update that does not arrive, or only in part, is found once its effect, added up over versions,
// exceeds five times the server's error. In float32 that is after one step, even with a learning rate
// of 1e-6; in bfloat16 it is when the policy has moved by about 0.1 nats.
//
// A Canary may be used concurrently.
type Canary struct {
	// Prompt is the prompt of Next. It usually has CanaryTokens tokens, as likely as possible.
	Prompt []int32
	// Logprobs returns the trainer's natural log-probabilities under the version being
	// published. Entry i is log p(Prompt[i] | Prompt[:i]); entry 0 is ignored. It may be
	// called concurrently.
	Logprobs func(ctx context.Context, version int64) ([]float32, error)
	// Perturb returns perturbed weights. It may be called concurrently.
	Perturb func(ctx context.Context) (*Perturbed, error)
}

// Perturbed is weights in which every tensor has other values than in any version. Their version is
// 0.
type Perturbed struct {
	inference.Weights
	Prompt   []int32   // the prompt of First; usually spread over the vocabulary
	Logprobs []float32 // the trainer's log-probabilities of Prompt, in the form of Canary.Logprobs
	Limit    float64   // maximum error of a server that holds the weights, in nats; 0 means perturbedError
	Free     func()    // frees the weights; the receiver of a Perturbed calls it once
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

// Sampler makes one exchange with a server and returns req.N responses of up to limit tokens each. The
// server may have aborted some, so that they end early.
type Sampler func(ctx context.Context, req inference.Request, limit int) ([]inference.Completion, error)

// ErrWeights reports that a server's log-probabilities are not those of the weights that it claims to
// hold.
var ErrWeights = errors.New("the server computes with other weights")

// Record is what a Canary knows about a server. It does not change.
type Record struct {
	noise float64 // the server's noise
	// version is the verified version with which later ones are compared: the newest that differed
	// measurably from the one before it. It is 0 before the first version.
	version int64
	trainer []float32 // the trainer's log-probabilities under version
}

// First verifies a server that should hold p and returns its first record. The error wraps ErrWeights
// if the server does not hold p.
func (c *Canary) First(ctx context.Context, p *Perturbed, sample Sampler) (*Record, error) {
	s, err := compare(ctx, p.Prompt, p.Logprobs, sample)
	if err != nil {
		return nil, err
	}
	limit := cmp.Or(p.Limit, perturbedError)
	if off := distance(s.server, s.trainer); !(off <= limit) { // negated, so that NaN is an error too
		return nil, fmt.Errorf("under perturbed weights, log-probabilities differ from the trainer's by %.2g, "+
			"expected at most %.2g: an update does not reach every tensor: %w", off, limit, ErrWeights)
	}
	return &Record{noise: s.noise()}, nil
}

// Next verifies a server that should hold a version and returns its next record. last is its record
// before. The error wraps ErrWeights if the server does not hold the version.
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

// comparison holds the log-probabilities of a prompt, without the first token, from trainer and
// server.
type comparison struct{ trainer, server []float32 }

// compare gets the prompt's log-probabilities from the server. want is the trainer's.
func compare(ctx context.Context, prompt []int32, want []float32, sample Sampler) (*comparison, error) {
	if len(want) != len(prompt) {
		return nil, fmt.Errorf("canary: trainer returned %d log-probabilities for %d tokens", len(want), len(prompt))
	}
	const limit = 1 // servers must sample at least one token
	out, err := sample(ctx, inference.Request{
		PromptIDs: prompt, N: 1, PromptLogprobs: true,
		Sampling: inference.Sampling{Temperature: 1, TopP: 1, MaxTokens: limit},
	}, limit)
	if err != nil {
		return nil, fmt.Errorf("canary: %w", err)
	}
	return &comparison{trainer: slices.Clone(want[1:]), server: slices.Clone(out[0].PromptLogprobs[1:])}, nil
}

// first verifies the first true version. noise is that under perturbed weights.
func (c *comparison) first(version int64, noise float64) (*Record, error) {
	median := c.median()
	off := distance(c.server, c.trainer)
	spread := spread(c.trainer)
	now := c.noise()
	switch {
	case !(median <= medianError): // negated, so that NaN is an error too
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
	return &Record{noise: noise, version: version, trainer: c.trainer}, nil
}

// next verifies a version after the first. Its conditions are negated, so that NaN is an error too.
func (c *comparison) next(version int64, last *Record) (*Record, error) {
	off := distance(c.server, c.trainer)
	old := distance(c.server, last.trainer)
	// The conversion forbids a fused multiply-add, so that all platforms decide alike.
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
		return &Record{noise: last.noise, version: version, trainer: c.trainer}, nil
	}
	return last, nil
}

// noise returns the noise, at least exactness. It is NaN if a log-probability is.
func (c *comparison) noise() float64 {
	return max(distance(c.server, c.trainer)/spread(c.trainer), exactness)
}

// median returns the median absolute difference in nats, the upper one of the two if their number is
// even. It is NaN if any difference is.
func (c *comparison) median() float64 {
	all := make([]float64, len(c.trainer))
	for i := range all {
		all[i] = math.Abs(float64(c.server[i]) - float64(c.trainer[i]))
	}
	slices.Sort(all) // puts NaN first
	if math.IsNaN(all[0]) {
		return all[0]
	}
	return all[len(all)/2]
}

// Distance returns the error between two lists of a prompt's log-probabilities in the form of
// Canary.Logprobs: the root of the mean squared difference, without entry 0.
func Distance(a, b []float32) float64 { return distance(a[1:], b[1:]) }

// distance returns the root of the mean squared difference. Like spread, it converts products to
// float64 to forbid fused multiply-adds, so that all platforms compute the same value.
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
