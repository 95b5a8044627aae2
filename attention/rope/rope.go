// Package rope computes rotary frequencies, scaled for longer contexts.
package rope

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/easyrl/easyrl/internal/rounded"
)

// The kinds of scaling.
const (
	plain   = "default"
	linear  = "linear"
	dynamic = "dynamic"
	yarn    = "yarn"
	llama3  = "llama3"
)

// Scaling sets how rotary frequencies are scaled for a longer context, in the terms
// of Hugging Face's rope_scaling.
type Scaling struct {
	// Kind is "default", "linear" (Chen et al. 2023), "dynamic", "yarn" (Peng et al.
	// 2023, section 3) or "llama3" (Llama 3.1). "dynamic" is treated as "default": it
	// changes only sequences longer than max_position_embeddings, which easyrl
	// rejects.
	Kind               string
	Factor             float64
	Original           float64 // context length of the training before scaling
	LowFreq, HighFreq  float64 // llama3
	BetaFast, BetaSlow float64 // yarn
	Attention          float64 // yarn: factor of cosines and sines; 0 derives it
	MScale, MScaleAll  float64 // yarn: used to derive Attention
	Truncate           bool    // yarn: round the ramp's bounds to whole dimensions
}

// Fields holds the rotary settings of a config.json.
type Fields struct {
	Theta, MaxPositions float64
	Scaling, Parameters map[string]any // rope_scaling and rope_parameters
	Original            *float64       // original_max_position_embeddings beside them; may be nil
}

// Read returns the base of the rotary angles and their scaling. Versions of the
// format keep them in two places: in rope_scaling, with rope_theta beside it, or
// together in rope_parameters. rope_scaling wins. The error names every fault.
func Read(f Fields) (theta float64, s Scaling, err error) {
	theta = f.Theta
	s = Scaling{Original: f.MaxPositions, BetaFast: 32, BetaSlow: 1, Truncate: true}
	name, fields := "rope_scaling", f.Scaling
	if len(fields) == 0 {
		name, fields = "rope_parameters", f.Parameters
	}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(name+": "+format, args...)) }
	s.Kind = kindOf(fields, bad)
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if _, ok := fields[key].(map[string]any); ok {
			bad("%s is an object, but settings per layer are not supported", key)
		}
	}
	if v, ok := fields["partial_rotary_factor"]; ok && v != 1.0 {
		bad("partial_rotary_factor %v is not supported, expected 1", v)
	}
	numbers := map[string]*float64{
		"rope_theta": &theta, "factor": &s.Factor, "original_max_position_embeddings": &s.Original,
		"low_freq_factor": &s.LowFreq, "high_freq_factor": &s.HighFreq, "beta_fast": &s.BetaFast,
		"beta_slow": &s.BetaSlow, "attention_factor": &s.Attention, "mscale": &s.MScale,
		"mscale_all_dim": &s.MScaleAll,
	}
	for _, key := range slices.Sorted(maps.Keys(numbers)) {
		switch v := fields[key].(type) {
		case nil:
		case float64:
			*numbers[key] = v
		default:
			bad("%s is %v, expected a number", key, v)
		}
	}
	if f.Original != nil { // overrides original_max_position_embeddings in fields
		s.Original = *f.Original
	}
	factor, hasFactor := fields["factor"]
	switch {
	case hasFactor && factor == nil && s.Kind == yarn && s.Original > 0: // null
		s.Factor = f.MaxPositions / s.Original
	case hasFactor && s.Kind == "":
		bad("factor is %v without a rope_type, expected one of linear, dynamic, yarn and llama3", factor)
	}
	switch v := fields["truncate"].(type) {
	case nil:
	case bool:
		s.Truncate = v
	default:
		bad("truncate is %v, expected true or false", v)
	}
	s.Kind = cmp.Or(s.Kind, plain)
	if s.Kind == yarn && theta <= 1 {
		bad("rope_theta is %v, expected more than 1 for yarn", theta)
	}
	return theta, s, errors.Join(append(errs, s.validate())...)
}

// kindOf returns the kind in fields, or "" if there is none. rope_type is the newer
// key and wins.
func kindOf(fields map[string]any, bad func(format string, args ...any)) (kind string) {
	for _, key := range []string{"type", "rope_type"} {
		switch v := fields[key].(type) {
		case nil:
		case string:
			kind = v
		default:
			bad("%s is %v, expected a string", key, v)
		}
	}
	return kind
}

// validate requires a known kind and usable values for it.
func (s *Scaling) validate() error {
	positive := func(fields map[string]float64) error {
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			if v := fields[name]; !(v > 0) || math.IsInf(v, 0) { // !(v > 0) is also true of NaN
				return fmt.Errorf("rope scaling %q: %s is %v, expected more than 0", s.Kind, name, v)
			}
		}
		return nil
	}
	switch s.Kind {
	case plain, dynamic:
		return nil
	case linear:
		return positive(map[string]float64{"factor": s.Factor})
	case yarn:
		return positive(map[string]float64{"factor": s.Factor, "original_max_position_embeddings": s.Original,
			"beta_fast": s.BetaFast, "beta_slow": s.BetaSlow})
	case llama3:
		err := positive(map[string]float64{"factor": s.Factor, "original_max_position_embeddings": s.Original,
			"low_freq_factor": s.LowFreq, "high_freq_factor": s.HighFreq})
		if err == nil && s.HighFreq <= s.LowFreq {
			err = fmt.Errorf("rope scaling %q: high_freq_factor is %v, expected more than low_freq_factor %v", s.Kind,
				s.HighFreq, s.LowFreq)
		}
		return err
	}
	return fmt.Errorf("rope scaling %q is not supported, expected default, linear, dynamic, yarn or llama3", s.Kind)
}

// Frequencies returns the angle per position of each pair of dimensions, and the
// factor of the cosines and sines.
func (s *Scaling) Frequencies(theta float64, dim int) (freq []float64, factor float64) {
	freq = make([]float64, dim/2)
	for i := range freq {
		freq[i] = 1 / rounded.Pow(theta, float64(2*i)/float64(dim))
	}
	switch s.Kind {
	case linear:
		for i := range freq {
			freq[i] /= s.Factor
		}
	case llama3:
		for i, f := range freq {
			freq[i] = s.llama3(f)
		}
	case yarn:
		return freq, s.yarn(freq, theta, dim)
	}
	return freq, 1
}

// llama3 keeps high frequencies, divides low ones by the factor and interpolates between.
func (s *Scaling) llama3(f float64) float64 {
	turns := s.Original * f / (2 * math.Pi) // turns in the original context
	blend := (turns - s.LowFreq) / (s.HighFreq - s.LowFreq)
	blend = min(1, max(0, blend))
	return float64((1-blend)*f)/s.Factor + float64(blend*f)
}

// yarn interpolates frequencies by parts ("NTK-by-parts"), in place, and returns the
// factor of cosines and sines. A ramp blends f with f/Factor between the dimensions
// that turn BetaFast and BetaSlow times in the original context.
func (s *Scaling) yarn(freq []float64, theta float64, dim int) float64 {
	dimension := func(turns float64) float64 { // the dimension that turns this often in the original context
		return float64(dim) * rounded.Log(s.Original/(turns*2*math.Pi)) / (2 * rounded.Log(theta))
	}
	low, high := dimension(s.BetaFast), dimension(s.BetaSlow)
	if s.Truncate {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, float64(dim-1))
	if low == high {
		high += 0.001 // avoids a division by 0, as in transformers
	}
	for i, f := range freq {
		ramp := min(1, max(0, (float64(i)-low)/(high-low)))
		freq[i] = float64(f/s.Factor*ramp) + float64(f*(1-ramp))
	}
	scale := func(m float64) float64 {
		if s.Factor <= 1 {
			return 1
		}
		return float64(0.1*m*rounded.Log(s.Factor)) + 1
	}
	switch {
	case s.Attention != 0:
		return s.Attention
	case s.MScale != 0 && s.MScaleAll != 0:
		return scale(s.MScale) / scale(s.MScaleAll)
	}
	return scale(1)
}
