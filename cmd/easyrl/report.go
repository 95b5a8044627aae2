package main

import (
	"context"
	"errors"
	"io/fs"
	"syscall"

	"github.com/easyrl/easyrl/internal/cli"
	"github.com/easyrl/easyrl/internal/notice"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/page"
)

func reportVerb(std streams) cli.Verb {
	v := cli.Verb{
		Name:     "report",
		Synopsis: "RUN_DIR",
		Summary:  "Write a run's report.html and print its first and last metrics.",
		Example:  "easyrl report runs/quickstart/grpo",
		Flags:    cli.NewFlags(),
	}
	v.Run = func(_ context.Context, args []string) error {
		if len(args) != 1 {
			return usage.Errorf("report: got %d arguments, expected one run folder", len(args))
		}
		for _, line := range report.Damage(args[0]) {
			notice.Print(std.err, notice.Warning, "%s", line)
		}
		path, rows, err := page.Write(args[0])
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			return usage.Errorf("report: %s is not a run folder, expected one with %s: %w", args[0],
				report.MetricsFile, err)
		}
		if err != nil {
			return err
		}
		p := cli.Printer{W: std.out}
		p.Line("%-28s %10s %10s   %s", "", "first", "last", "steps")
		for _, row := range rows {
			p.Line("%-28s %10s %10s   %d to %d", row.Name, report.Number(row.First), report.Number(row.Last),
				row.FirstStep, row.LastStep)
		}
		p.Line("%s", path)
		return nil
	}
	return v
}
