// Package grade decides whether a response to a mathematical question gives the right
// answer.
//
// Correct finds the answer in the response as a reader would and compares it using
// package answer:
//
//  1. Only the text after the reasoning counts, up to the end of the turn or the
//     next question of a base model (Final). Unfinished reasoning gives no answer.
//  2. A marked answer takes precedence: the last \boxed{…}, or the text after
//     "####", in <answer> or after "the answer is" (Extract). A later sentence that
//     takes it back and concludes otherwise overrules it.
//  3. Without a mark, the last sentence with a number or mathematics decides.
//     Asides, purposes, comparisons, reasons, leftovers and denials in it are
//     ignored. Results of arithmetic and bold type are preferred.
//  4. An undecided or unfinished response gives no answer: "5 or 7", "it might be 7",
//     a list of guesses, "cannot be determined", an unfinished box or fraction.
//
// Answers are equal if they mean the same, in whatever form: 1/2, 0.5 and 50%; (x+1)^2
// and its expansion; x < 3 and (-∞, 3). As in Math-Verify, a decimal equals a number
// without a finite decimal expansion if it is rounded correctly to at least 6 digits:
// 0.333333 is 1/3, 0.333 is not. "2 hours and 40 minutes" equals 160 (minutes) or 8/3
// (hours), never 40.
//
// Responses come from models: time and memory are bounded for any text.
package grade
