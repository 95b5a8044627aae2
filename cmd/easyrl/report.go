package main

import (
	"context"
	"errors"
	"io/fs"
	"syscall"

	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/page"
)

func reportVerb(std streams) verb {
	v := verb{
		name:     "report",
		synopsis: "RUN_DIR",
		summary:  "Write report.html from what a run recorded, and compare its beginning with its end.",
		example:  "easyrl report runs/quickstart/grpo",
		flags:    newFlags(),
	}
	v.run = func(_ context.Context, args []string) error {
		if len(args) != 1 {
			return usage.Errorf("report: %d folders given, expected one run's folder", len(args))
		}
		path, rows, err := page.Write(args[0])
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			return usage.Errorf("report: %s is not a run's folder, expected one with %s: %w", args[0], report.MetricsFile, err)
		}
		if err != nil {
			return err
		}
		p := printer{std.out}
		p.line("%-28s %10s %10s   %s", "", "first", "last", "steps")
		for _, row := range rows {
			p.line("%-28s %10s %10s   %d to %d", row.Name, report.Number(row.First), report.Number(row.Last), row.FirstStep, row.LastStep)
		}
		p.line("%s", path)
		return nil
	}
	return v
}
