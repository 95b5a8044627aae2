package evaluate

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// WriteTable prints the metrics of a Run as a table, with a row for each set, in order, and
// one for their average.
func WriteTable(w io.Writer, metrics map[string]float64, sets []Set) error {
	rows := [][]string{{"set"}}
	columns := columnsOf(metrics)
	rows[0] = append(rows[0], columns...)
	names := make([]string, 0, len(sets)+1)
	for i := range sets {
		names = append(names, sets[i].Name)
	}
	if len(sets) > 1 {
		names = append(names, Average)
	}
	for _, name := range names {
		row := []string{name}
		for _, column := range columns {
			cell := "-"
			if x, ok := metrics["eval/"+name+"/"+column]; ok {
				cell = cellOf(column, x)
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	return writeRows(w, rows)
}

// writeRows prints rows of equal length with the first column left-aligned.
func writeRows(w io.Writer, rows [][]string) error {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		fmt.Fprintf(&line, "%-*s", widths[0], row[0])
		for i, cell := range row[1:] {
			fmt.Fprintf(&line, "  %*s", widths[i+1], cell)
		}
		if _, err := fmt.Fprintln(w, line.String()); err != nil {
			return err
		}
	}
	return nil
}

// columnsOf returns the metrics that any set has, in column order.
func columnsOf(metrics map[string]float64) []string {
	var columns []string
	for name := range metrics {
		_, column, _ := strings.Cut(strings.TrimPrefix(name, "eval/"), "/")
		if !slices.Contains(columns, column) {
			columns = append(columns, column)
		}
	}
	slices.SortFunc(columns, func(a, b string) int {
		rankA, kA := rank(a)
		rankB, kB := rank(b)
		switch {
		case rankA != rankB:
			return rankA - rankB
		case kA != kB:
			return kA - kB
		}
		return strings.Compare(a, b)
	})
	return columns
}

// rank returns a metric's place among the columns, and its k.
func rank(column string) (place, k int) {
	order := []string{"mean", stdErr, "pass", "maj", "", "response_length", "clip_ratio", prompts, leftOut, failed}
	kind, number, _ := strings.Cut(column, "@")
	k, _ = strconv.Atoi(number) // 0 without a number
	if i := slices.Index(order, kind); i >= 0 {
		return i, k
	}
	return slices.Index(order, ""), k // a component of the reward
}

// cellOf formats a metric.
func cellOf(column string, x float64) string {
	switch column {
	case prompts, leftOut, failed:
		return fmt.Sprintf("%.0f", x)
	case "response_length":
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.4f", x)
}
