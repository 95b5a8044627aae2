// Package host works on weights in host memory: copies, checksums, panel layout.
package host
