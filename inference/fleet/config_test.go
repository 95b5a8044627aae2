package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference/fleet/state"
)

func TestConfigReportsAllFaults(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Config: state.Config{Ahead: -1}, Vocab: -1})
	for _, want := range []string{"min serving", "attempts", "dead after", "vocabulary", "call timeout",
		"publish timeout", "empty wait", "backoff", "ahead", "probe every", "probe timeout", "watchdog"} {
		require.ErrorContains(t, err, want)
	}
}

// The watchdog outlasts every other deadline.
func TestConfigWatchdogOutlastsEveryDeadline(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(c *Config, d time.Duration){
		"call timeout":    func(c *Config, d time.Duration) { c.CallTimeout = d },
		"publish timeout": func(c *Config, d time.Duration) { c.PublishTimeout = d },
		"empty wait":      func(c *Config, d time.Duration) { c.EmptyWait = d },
		"largest backoff": func(c *Config, d time.Duration) { c.BackoffMax = d },
		"probe every":     func(c *Config, d time.Duration) { c.ProbeEvery = d },
		"probe timeout":   func(c *Config, d time.Duration) { c.ProbeTimeout = d },
	} {
		c := DefaultConfig()
		require.NoError(t, c.Validate())
		set(&c, c.Watchdog-1)
		require.NoError(t, c.Validate(), name)
		set(&c, c.Watchdog)
		require.EqualError(t, c.Validate(), "fleet: watchdog 45m0s, expected more than "+name+" (45m0s)")
	}
}
