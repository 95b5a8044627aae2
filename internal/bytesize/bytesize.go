// Package bytesize formats amounts of memory for people.
package bytesize

import "fmt"

// Text returns n bytes as text such as "1.5 GiB" or, below 1 GiB, "12.0 MiB". Less than
// 0.1 MiB is given in bytes.
func Text(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n*10 >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d bytes", n)
}
