package simulate

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Parse reads an instance's configuration from "key=value,key=value,…". Missing
// keys have the values of Default. The keys are lengths (see parseLengths),
// tokens_per_second, prefill_tokens_per_second, slots, publish_seconds, failures,
// vocab and context. A part without "=" continues the previous value, so that
// values may contain commas.
func Parse(spec string) (Config, error) {
	c := Default()
	seen := map[string]bool{}
	for _, setting := range settings(spec) {
		key, value, ok := strings.Cut(setting, "=")
		if !ok {
			return Config{}, fmt.Errorf("simulate: %q, expected key=value", setting)
		}
		key = strings.TrimSpace(key)
		if seen[key] {
			return Config{}, fmt.Errorf("simulate: %s is set twice", key)
		}
		seen[key] = true
		if err := c.set(key, strings.TrimSpace(value)); err != nil {
			return Config{}, fmt.Errorf("simulate: %w", err)
		}
	}
	if err := c.Validate(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// settings splits spec into key=value parts.
func settings(spec string) []string {
	var out []string
	if strings.TrimSpace(spec) == "" {
		return nil
	}
	for part := range strings.SplitSeq(spec, ",") {
		if len(out) > 0 && !strings.Contains(part, "=") {
			out[len(out)-1] += "," + part
		} else {
			out = append(out, part)
		}
	}
	return out
}

// set parses the value of a key and stores it in c. Validate checks most ranges.
func (c *Config) set(key, value string) error {
	var err error
	switch key {
	case "lengths":
		c.Lengths, err = parseLengths(value)
		return err
	case "tokens_per_second":
		c.TokensPerSecond, err = strconv.ParseFloat(value, 64)
	case "prefill_tokens_per_second":
		c.PrefillTokensPerSecond, err = strconv.ParseFloat(value, 64)
	case "publish_seconds":
		var s float64
		s, err = strconv.ParseFloat(value, 64)
		if err == nil && !(s >= 0 && s <= math.MaxInt32) { // negated, so that NaN is an error too
			return fmt.Errorf("publish_seconds %v, expected 0 to %d", s, math.MaxInt32)
		}
		c.Publish = time.Duration(s * float64(time.Second))
	case "failures":
		c.Failures, err = strconv.ParseFloat(value, 64)
	case "slots":
		c.Slots, err = strconv.Atoi(value)
	case "vocab":
		c.Vocab, err = strconv.Atoi(value)
	case "context":
		c.Context, err = strconv.Atoi(value)
	default:
		return fmt.Errorf("key %q, expected lengths, tokens_per_second, prefill_tokens_per_second, slots, "+
			"publish_seconds, failures, vocab or context", key)
	}
	if err != nil {
		return fmt.Errorf("%s %q, expected a number", key, value)
	}
	return nil
}
