// Package answer decides whether two answers to a mathematical question say the
// same: numbers, fractions, roots, intervals, sets, tuples, matrices, equations,
// ratios, choices and words.
//
// Time and memory are bounded for any text: what is long or large is compared by
// its letters alone.
package answer
