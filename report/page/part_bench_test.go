package page

import (
	"testing"

	"github.com/easyrl/easyrl/report"
)

// BenchmarkPart measures what the live page costs the trainer of a long run.
func BenchmarkPart(b *testing.B) {
	for _, part := range []string{"numbers", "curves"} {
		b.Run(part, func(b *testing.B) {
			steps := &report.Steps{}
			for i := range 10_000 {
				values := report.Values{"step": float64(i), "time": 1.8e9 + float64(i), "timing_s/step": 1}
				for _, group := range []string{"reward", "actor", "perf", "timing_s", "tokens"} {
					for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
						values[group+"/"+name] = float64(i * len(group) % 97)
					}
				}
				steps.Add(values)
			}
			dir := b.TempDir()
			for b.Loop() {
				html, err := Part(part, dir, steps)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(len(html)), "page-B")
			}
		})
	}
}
