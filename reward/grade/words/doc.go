// Package words recognizes what words beside a value say: numbers, choices, denials, doubts and
// comparisons.
package words
