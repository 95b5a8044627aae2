// Package grade decides whether a response to a mathematical question gives the right
// answer.
//
// A response is right if its last mark states one answer, in final form, that equals the
// reference answer. The page docs/grading.md defines these terms by example, and a test checks each example.
//
// # Where the answer is
//
// Only the text after the reasoning counts, up to the end of the turn or the next question
// of a base model (Final). In that text the last mark states the answer (Extract): a box, a
// line after ####, <answer>…</answer>, a phrase that says "answer" and holds the answer
// alone, or a text that is nothing but an answer. A mark that is cut off gives none, and
// prose is not read.
//
// # What it must be
//
//   - For a number: the number in any notation, with no operation left to do. 1/2, 0.5 and
//     50% are equal; 7 + 3 is not 10. As in Math-Verify, a decimal equals a number without a
//     finite decimal expansion if it is rounded correctly to at least 6 digits: 0.333333 is
//     1/3, 0.333 is not. All members of a chain of equations must agree.
//   - For a formula: the same function, also where variables are negative: x is not |x|.
//   - For an equation, an interval, a set, a tuple or a matrix: the same object, with no
//     operation left to do that the reference answer lacks. x < 3 is (-∞, 3).
//   - For words: the same words, with nothing beside them but words of the question and
//     others that say nothing more.
//   - For several lines: the same numbers and words in each line.
//
// # What the question decides
//
// The unit, the base, the rounding and the form of the answer, if the question asks for one.
// An answer that repeats a formula or an equation of the question answers nothing. A unit of
// something else, an equation that gives the value to another name, and words that doubt,
// deny or change the value make a response wrong. So do words that neither the question nor a
// plain answer uses. Without a question, only the value and the operations left to do count.
//
// # Bounds
//
// Responses come from models: time and memory are bounded for any text. Boxes count anywhere
// in a response, other marks only in its last 64 KiB. Answers above 4 KiB are compared only as
// text.
package grade
