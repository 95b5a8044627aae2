// Package grade decides whether a response to a mathematical question gives the right
// answer.
//
// A response is right if it states one answer, in final form, that equals the reference
// answer.
//
// # Where the answer is
//
// Only the text after the reasoning counts, up to the end of the turn or the next question
// of a base model (Final). Unfinished reasoning gives no answer. In that text:
//
//   - A mark states the answer: the last \boxed{…}, or the text after "####", in <answer> or
//     after "the answer is" (Extract). A later sentence that takes it back and concludes
//     otherwise overrules it.
//   - Without a mark, the last sentence with a number or mathematics states it. Asides,
//     purposes, comparisons, reasons, leftovers and denials in it do not count. Results of
//     arithmetic and bold type are preferred.
//   - "5 or 7", a list of guesses, several marks that disagree, "cannot be determined", and a
//     response that breaks off state no answer.
//
// # What it must be
//
//   - For a number: the number in any notation, with no operation left to do. 1/2, 0.5 and
//     50% are equal; 7 + 3 is not 10. As in Math-Verify, a decimal equals a number without a
//     finite decimal expansion if it is rounded correctly to at least 6 digits: 0.333333 is
//     1/3, 0.333 is not. All members of a chain of equations must agree.
//   - For a formula, an equation, an interval, a set, a tuple or a matrix: the same object,
//     with no operation left to do that the reference answer lacks. x < 3 is (-∞, 3).
//   - For words: the same words, with nothing beside them but words of the question and
//     others that say nothing more.
//   - For several lines: the same numbers and words in each line, after a mark or alone.
//
// # What the question decides
//
// The unit, the base and the form of the answer, if the question asks for one: minutes, a
// decimal, lowest terms, factors. An answer that repeats a formula of the question answers
// nothing. A unit of something else, an equation that gives the value to another name, and
// words around the value that doubt, deny or change it make a response wrong. So do words in
// a mark that neither the question nor a plain answer uses. Without a question, only the
// value and the operations left to do count.
//
// # Bounds
//
// Responses come from models: time and memory are bounded for any text. Of a response, marks
// are searched in the whole text, phrases in the last 64 KiB, and the concluding sentence in
// the last 4 KiB. Answers above 4 KiB are compared only as text.
package grade
