package page

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/easyrl/easyrl/internal/filetype"
	"github.com/easyrl/easyrl/internal/secret"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/trace"
)

// parts returns the names of the page's parts, which are also the names of their templates.
func parts() []string {
	return []string{"numbers", "warnings", "curves", "timeline", "answers", "configuration"}
}

// Part renders one part of the page of the run in dir: numbers, warnings, curves,
// timeline, answers or configuration. steps may be empty.
func Part(part, dir string, steps *report.Steps) ([]byte, error) {
	var p page
	err := p.fill(part, dir, steps)
	var html []byte
	if err == nil {
		html, err = render(part, &p)
	}
	if err != nil {
		return nil, fmt.Errorf("draw %s: %w", part, err)
	}
	return html, nil
}

// Heading returns the name of the run in dir and its progress, such as "100 steps in 1m02s". The progress
// is "" if there are no steps.
func Heading(dir string, steps *report.Steps) (name, extended string, err error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return "", "", err
	}
	if steps.Len() > 0 {
		extended = extent(steps)
	}
	return title(absolute), extended, nil
}

// fill reads or draws the content of a part. It leaves the timeline empty if a crash damaged the trace.
func (p *page) fill(part, dir string, steps *report.Steps) (err error) {
	switch part {
	case "numbers":
		p.Rows = compare(steps)
		p.Parts, p.Idle = times(steps)
	case "warnings":
		p.Warnings, err = report.ReadWarnings(filepath.Join(dir, report.WarningsFile))
		for i := range p.Warnings {
			p.Warnings[i].Text = secret.Hide(p.Warnings[i].Text)
		}
	case "curves":
		p.Curves = drawCurves(steps)
	case "timeline":
		if p.Timeline, err = drawTimeline(dir); err != nil && report.Damaged(filepath.Join(dir, trace.File)) != "" {
			p.Timeline, err = "", nil
		}
	case "answers":
		p.Answers, err = readAnswers(dir)
	case "configuration":
		config, readErr := filetype.Read(filepath.Join(dir, "run.toml"))
		if readErr != nil && !errors.Is(readErr, fs.ErrNotExist) {
			return readErr
		}
		p.Config = secret.Hide(string(config)) // pages are shared
		p.Machine, err = report.ReadMachine(dir)
	}
	return err
}
