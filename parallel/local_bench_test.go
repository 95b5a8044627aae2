package parallel_test

import (
	"sync"
	"testing"

	"github.com/easyrl/easyrl/parallel/paralleltest"
)

// Beside n goroutines that copy.
func BenchmarkLocal(b *testing.B) {
	paralleltest.Bench(b, open, func(_ *testing.B, n, bytes int) func(times int) {
		from, to := make([][]byte, n), make([][]byte, n)
		for i := range n {
			from[i], to[i] = make([]byte, bytes), make([]byte, bytes)
			paralleltest.Touch(from[i])
			paralleltest.Touch(to[i])
		}
		return func(times int) {
			var copying sync.WaitGroup
			for i := range n {
				copying.Go(func() {
					for range times {
						copy(to[i], from[i])
					}
				})
			}
			copying.Wait()
		}
	})
}
