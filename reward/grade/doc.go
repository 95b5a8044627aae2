// Package grade decides whether a response to a mathematical question gives the
// right answer.
//
// Correct finds the answer in the response as a reader would, and compares it with
// package answer:
//
//  1. What follows the reasoning counts, up to where the turn ends or a base model
//     goes on with another question (Final). Reasoning without an end is no answer.
//  2. An answer that is marked as one comes first: the last \boxed{…}, what stands
//     behind "####", in <answer>, or behind "the answer is" (Extract). A sentence
//     that takes it back and concludes otherwise overrules it.
//  3. Without a mark, the last sentence that has a number or mathematics concludes.
//     Of what is in it asides, purposes, comparisons, reasons, leftovers and denials
//     are left out, and the results of arithmetic and bold type are preferred.
//  4. What remains open is no answer: "5 or 7", "it might be 7", a list of guesses,
//     "cannot be determined", a box or a fraction that the response ends within.
//
// Answers are the same where they say the same, whatever their form: 1/2, 0.5 and
// 50%; (x+1)^2 and its expansion; x < 3 and (-∞, 3). A decimal stands for a number
// without a finite one if it is rounded correctly to 6 digits or more, as in
// Math-Verify: 0.333333 is 1/3, and 0.333 is not.
// "2 hours and 40 minutes" is 160, its minutes, or 8/3, its hours, and never 40.
//
// Responses come from models: time and memory are bounded for any text.
package grade
