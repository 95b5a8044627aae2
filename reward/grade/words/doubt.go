package words

import "strings"

// Doubts reports whether a word in lower case doubts, denies, or bounds what a sentence
// says, or offers a choice.
func Doubts(word string) bool {
	switch strings.ReplaceAll(word, "’", "'") {
	case "wrong", "incorrect", "incorrectly", "false", "falsely", "untrue", "mistaken", "mistakenly", "mistake", "invalid", "impossible", "unlikely", "doubt", "doubtful", "hardly", "barely", "scarcely",
		"maybe", "perhaps", "possibly", "probably", "might", "guess", "guesses", "guessing", "unsure", "uncertain", "suppose", "supposedly", "allegedly", "apparently", "presumably",
		"alternative", "options", "pairs", "alternatives", "alternatively", "respectively", "otherwise", "unless", "either", "whether", "chance", "candidate", "candidates",
		"shy", "slightly", "shortly", "almost", "nearly", "virtually", "roughly", "approx", "approximately", "about", "around", "excluding", "contrary",
		"mislabeled", "misread", "ruled", "eliminated", "rejected", "discarded", "claim", "claims", "claimed", "pretend", "strictly":
		return true
	}
	return false
}
