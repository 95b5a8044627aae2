package main

import (
	"context"
	"runtime"
	"runtime/debug"

	"github.com/easyrl/easyrl/internal/cli"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/run"
)

func versionVerb(std streams) cli.Verb {
	v := cli.Verb{
		Name:    "version",
		Summary: "Print the version, revision, Go version and compiled-in devices.",
		Example: "easyrl version",
		Flags:   cli.NewFlags(),
	}
	v.Run = func(_ context.Context, args []string) error {
		if len(args) > 0 {
			return usage.Errorf("version: unexpected argument %s", args[0])
		}
		version, revision := "(devel)", "unknown"
		if info, ok := debug.ReadBuildInfo(); ok {
			version, revision = info.Main.Version, revisionOf(info)
		}
		dev, err := run.OpenCPU(1)
		if err != nil {
			return err
		}
		defer dev.Close() //nolint:errcheck // only its name is read
		p := cli.Printer{W: std.out}
		p.Line("easyrl %s", version)
		p.Line("revision %s", revision)
		p.Line("go %s %s/%s", runtime.Version(), runtime.GOOS, runtime.GOARCH)
		p.Line("devices %s", dev.Info().Name)
		return nil
	}
	return v
}

// revisionOf returns the commit that the binary was built from.
func revisionOf(info *debug.BuildInfo) string {
	revision, modified := "unknown", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = " (modified)"
		}
	}
	return revision + modified
}
