package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// benchReport holds the results of a run of this command.
type benchReport struct {
	Date    string   `json:"date"`
	CPU     string   `json:"cpu"`
	Cores   int      `json:"cores"`
	Go      string   `json:"go"`
	Results []result `json:"results"`

	Asynchrony []asynchrony `json:"asynchrony,omitempty"`
	Curves     []curve      `json:"curves,omitempty"`
}

func newReport() (*benchReport, error) {
	cpu, err := cpuName()
	return &benchReport{Date: time.Now().UTC().Format(time.DateOnly), CPU: cpu, Cores: runtime.NumCPU(),
		Go: runtime.Version()}, err
}

// cpuName returns the processor's model, or the architecture if the model is unknown.
func cpuName() (string, error) {
	b, err := os.ReadFile("/proc/cpuinfo")
	if os.IsNotExist(err) {
		return runtime.GOARCH, nil
	}
	if m := regexp.MustCompile(`(?m)^model name\s*: (.*)$`).FindSubmatch(b); m != nil {
		return string(m[1]), err
	}
	return runtime.GOARCH, err
}

// table formats the results for people. The memory column is the ratio to the peer's, or without a
// peer our peak.
func (r *benchReport) table() string {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "work\tagainst\tours s\tpeer s\tratio\tof rounds\taimed at\tmemory")
	for i := range r.Results {
		row := &r.Results[i]
		fmt.Fprintf(w, "%s\t%s\t%.4g\t", row.Name, row.Against, typical(row.Ours))
		if len(row.Rounds) == 0 {
			fmt.Fprintf(w, "\t\t\t%s\t%s\n", row.Aim, megabytes(row.Ours))
			continue
		}
		fmt.Fprintf(w, "%.4g\t%.2f\t%.2f to %.2f\t%s\t%.2f\n", typical(row.Peer), row.Ratio, slices.Min(row.Rounds),
			slices.Max(row.Rounds), row.Aim, row.Memory)
		for _, name := range slices.Sorted(maps.Keys(row.Parts)) {
			fmt.Fprintf(w, "  %s\t\t\t\t%.2f\t\t\t\n", name, row.Parts[name])
		}
	}
	if len(r.Asynchrony) > 0 {
		fmt.Fprintln(w, "\nperiodic-async over sync\tTi:Tt\tgain\tceiling\tshare")
	}
	for _, a := range r.Asynchrony {
		fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%.2f\t%.0f%%\n", cmp.Or(a.Settings, "quickstart"), a.Ratio, a.Gain, a.Ceiling,
			100*a.Gain/a.Ceiling)
	}
	_ = w.Flush() // writing to a buffer never fails
	return b.String()
}

// megabytes formats the largest peak memory of all rounds.
func megabytes(rounds []outcome) string {
	var peak int64
	for _, o := range rounds {
		peak = max(peak, o.PeakBytes)
	}
	return fmt.Sprintf("%d MB", peak/1e6)
}

// typical returns, in seconds, the median over rounds of a round's time, which is the
// sum of the medians of its parts.
func typical(rounds []outcome) float64 {
	var all []float64
	for _, o := range rounds {
		sum := 0.0
		for _, seconds := range o.Seconds {
			sum += median(seconds)
		}
		all = append(all, sum)
	}
	return median(all)
}

// write saves the figures, the plot and the table to dir/<date>-<cpu>.
func (r *benchReport) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	name := strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(r.CPU), "-"), "-")
	base := filepath.Join(dir, r.Date+"-"+name)
	figures, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(base+".json", append(figures, '\n'), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(base+".svg", plot(r.Curves), 0o644); err != nil {
		return err
	}
	return os.WriteFile(base+".txt", []byte(r.table()), 0o644)
}
