// Package algebra decides whether two expressions have the same value: exactly
// for rational numbers and rational functions, numerically at several points for
// the rest.
//
// Every step is bounded, whatever the exponents: what is too large to compute
// equals only what is written in the same way.
package algebra
