package compare

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/easyrl/easyrl/report"
)

// head returns the titles of the table's columns and their meanings.
func head() [][2]string {
	return [][2]string{
		{"mode", "run.mode and the value of the swept key"},
		{"threads", "of the trainer and the instances: \"+\" if they work at once, \"or\" if in turn"},
		{"steps", "number of timed steps; the first steps of each process are not timed"},
		{"time", "total time of the timed steps, without evaluations and checkpoints"},
		{"tokens", "trained tokens, prompts and responses"},
		{"tokens/s/core", "trained tokens per second per core"},
		{"speed-up", "over the first row"},
		{"Ti", "seconds per step in which instances sample"},
		{"Tt", "seconds per step in which the trainer computes"},
		{"ceiling", "(Ti+Tt)/max(Ti,Tt): the most that hiding the shorter phase behind the longer can gain; none if " +
			"both alternate on all cores"},
		{"idle trainer", "share of the step that the trainer waits"},
		{"idle instances", "share of the step that instances have no requests"},
		{"reward", "mean of the last step"},
		{"eval", "first mean@k of the last evaluation"},
		{"weights", "first digits of the SHA-256 of the final weights"},
	}
}

// rows returns the table's cells.
func rows(runs []Result) [][]string {
	var all [][]string
	for i := range runs {
		r := &runs[i]
		ceiling, reward := times(r.Ceiling), "-"
		if r.Share.Alternating {
			ceiling = "-"
		}
		if r.Reward != nil {
			reward = fmt.Sprintf("%.3f", *r.Reward)
		}
		all = append(all, []string{r.Name, strings.TrimSuffix(r.Share.String(), " threads"), fmt.Sprint(r.Timed),
			seconds(r.Seconds), report.Number(r.Tokens), report.Number(round(r.Rate)), times(r.Speedup),
			seconds(r.Sampling), seconds(r.Training), ceiling, share(r.IdleTrainer), share(r.IdleInstances), reward,
			r.evaluated(), short(r.Weights)})
	}
	return all
}

// share formats a fraction as a percentage.
func share(x float64) string { return fmt.Sprintf("%.0f%%", 100*x) }

// short abbreviates checksums.
func short(sums string) string {
	all := strings.Fields(sums)
	for i := range all {
		all[i] = all[i][:min(8, len(all[i]))]
	}
	return strings.Join(all, " ")
}

// evaluated returns the first mean@k of the last evaluation.
func (r *Result) evaluated() string {
	for _, name := range report.Values(r.Eval).Names() {
		if strings.Contains(name, "/mean@") {
			return fmt.Sprintf("%.3f", r.Eval[name])
		}
	}
	return "-"
}

// Print writes the table and the findings.
func (c *Comparison) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	var titles []string
	for _, column := range head() {
		titles = append(titles, column[0])
	}
	for _, cells := range append([][]string{titles}, rows(c.Runs)...) {
		if _, err := fmt.Fprintln(t, strings.Join(cells, "\t")+"\t"); err != nil {
			return err
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", strings.Join(c.Findings, "\n"))
	return err
}
