// Package words recognizes what words say: numbers, denials and doubts, and
// what a sentence does, such as conclude, correct or give up.
package words
