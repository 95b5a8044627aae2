// Package algebra decides whether two expressions have the same value: exactly for
// rational numbers and rational functions, numerically at several points for the rest.
//
// Every step is bounded for any exponent: an expression too large to compute equals
// only one written the same way.
package algebra
