package bytesize

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestText(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{
		0: "0 bytes", 1000: "1000 bytes", 104857: "104857 bytes", 104858: "0.1 MiB", 1 << 20: "1.0 MiB",
		64 << 20: "64.0 MiB", 1<<30 - 1: "1024.0 MiB",
		1 << 30: "1.0 GiB", 3 << 29: "1.5 GiB", 5 << 40: "5120.0 GiB",
	} {
		require.Equal(t, want, Text(n))
	}
}
