package tcp

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/parallel/paralleltest"
)

// BenchmarkTCP compares the transport with n plain connections over loopback, written and read whole.
func BenchmarkTCP(b *testing.B) {
	paralleltest.Bench(b, open, func(b *testing.B, n, bytes int) func(times int) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(b, err)
		defer l.Close()
		in, out, from, to := make([]net.Conn, n), make([]net.Conn, n), make([][]byte, n), make([][]byte, n)
		for i := range n {
			from[i], to[i] = make([]byte, bytes), make([]byte, bytes)
			paralleltest.Touch(from[i])
			paralleltest.Touch(to[i])
			out[i], err = net.Dial("tcp", l.Addr().String())
			require.NoError(b, err)
			in[i], err = l.Accept()
			require.NoError(b, err)
			b.Cleanup(func() { out[i].Close(); in[i].Close() })
		}
		return func(times int) {
			var copying sync.WaitGroup
			for i := range n {
				copying.Go(func() {
					for range times {
						_, _ = out[i].Write(from[i]) // the reader fails too
					}
				})
				copying.Go(func() {
					for range times {
						if _, err := io.ReadFull(in[i], to[i]); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			copying.Wait()
		}
	})
}
