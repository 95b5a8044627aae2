// Package bytesize formats amounts of memory for people.
package bytesize

import "fmt"

// Text formats n bytes in GiB, as in "1.5 GiB"; below 1 GiB in MiB, as in "12.0 MiB"; and
// below 0.1 MiB in bytes.
func Text(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n*10 >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d bytes", n)
}
