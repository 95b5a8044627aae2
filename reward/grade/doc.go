// Package grade decides whether a response to a mathematical question gives the
// right answer.
//
// Correct finds the answer in the response as a reader would: after the
// reasoning, in the last \boxed{…}, behind "####" or "the answer is", in bold, or
// in the sentence that concludes; and compares it with package answer.
//
// Responses come from models: time and memory are bounded for any text.
package grade
