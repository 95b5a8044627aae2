// Package answer decides whether two answers to a mathematical question are equal:
// numbers, fractions, roots, intervals, sets, tuples, matrices, equations, ratios,
// choices and words.
//
// Time and memory are bounded for any text: long or large answers are compared only as
// text.
package answer
