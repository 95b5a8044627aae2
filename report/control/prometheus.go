package control

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/easyrl/easyrl/report"
)

// prometheus formats values as gauges in Prometheus's text format: reward/mean becomes
// easyrl_reward_mean. The help text of each gauge ends with when, which says to what time the values
// belong. Names from data sources and rewards may map to the same metric. Only the first one is then
// written, because a scraper rejects duplicates.
func prometheus(values report.Values, when string) string {
	var b strings.Builder
	seen := map[string]bool{}
	for _, name := range values.Names() {
		metric, v := metricName(name), values[name]
		if seen[metric] || !report.Finite(v) {
			continue
		}
		seen[metric] = true
		fmt.Fprintf(&b, "# HELP %s %s %s.\n# TYPE %s gauge\n%s %v\n", metric,
			strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(name), when, metric, metric, v)
	}
	return b.String()
}

// metricName replaces the characters that Prometheus does not allow.
func metricName(name string) string {
	return "easyrl_" + regexp.MustCompile("[^0-9A-Za-z]").ReplaceAllString(name, "_")
}
