package secret

import "strings"

// tokenSize returns the size of a secret of a known kind at the start of text, which it recognizes by its
// prefix, or 0 if there is none. looked is the number of bytes that it has examined.
func tokenSize(text string) (size, looked int) {
	const (
		firstLetters = "AEGPSdefghnopqrstwxy" // first letters of the prefixes below, for a quick check
		shortest     = 12                     // minimum number of bytes after the prefix
	)
	if strings.IndexByte(firstLetters, text[0]) < 0 {
		return 0, 0
	}
	for _, prefix := range [...]string{
		"sk-", "sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_", // OpenAI, Anthropic, Stripe
		"hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "npm_", "pypi-", "dckr_pat_",
		"AKIA", "ASIA", "AIza", "ya29.", "GOCSPX-", "EAAC", "SG.", // AWS, Google, Facebook, SendGrid
		"xoxa-", "xoxb-", "xoxe-", "xoxo-", "xoxp-", "xoxr-", "xoxs-", "xapp-", // Slack
		"eyJ", "gsk_", "nvapi-", "pplx-", "xai-", "r8_", "tgp_v1_", "fw_", // JWT and servers of models
		"hvs.", "dop_v1_", "shpat_", "tskey-", "glsa_", "sntrys_", "dapi", "PMAK-", "lin_api_", "ntn_",
	} {
		if !strings.HasPrefix(text, prefix) {
			continue
		}
		for size < len(text) && isNameByte(text[size]) {
			size++
		}
		looked = size
		size = trimEnd(text, 0, size)
		if size-len(prefix) < shortest || !strings.ContainsAny(text[:size], "0123456789") {
			return 0, looked
		}
		return size, looked
	}
	return 0, 0
}

// looksRandom reports whether a word looks like a secret: it is a token of a known kind, it consists of
// hexadecimal digits that are not a hash, or it has a long run of letters and digits that is not readable.
// A path does not look random.
func looksRandom(word string) bool {
	if word == "" {
		return false
	}
	if size, _ := tokenSize(word); size == len(word) {
		return true
	}
	if strings.Contains(word, "/") {
		return len(word) >= 32 && strings.IndexAny(word, "/.-_:@") > 0 && !strings.ContainsAny(word, ".-_:@") &&
			!readable(strings.ReplaceAll(word, "/", ""))
	}
	if hex := strings.ReplaceAll(word, "-", ""); isHex(hex) {
		return len(hex) >= 24 && !isHash(word)
	}
	const shortest = 16
	for run := range strings.FieldsFuncSeq(word, func(r rune) bool { return r > 0x7f || !isAlphanumeric(byte(r)) }) {
		if len(word) >= 20 && len(run) >= shortest && !readable(run) && !(isHex(run) && isHash(run)) {
			return true
		}
	}
	return false
}

// isHex reports whether a word has only hexadecimal digits.
func isHex(word string) bool { return strings.Trim(word, "0123456789abcdefABCDEF") == "" }

// isHash reports whether a word of hexadecimal digits has the size of a Git commit or another hash.
func isHash(word string) bool {
	return len(word) == 40 || len(word) == 64 || len(word) == 128
}

// readable reports whether neighboring characters of a word rarely differ in kind: digit, upper case or
// lower case. In names of models they rarely differ, in random words often.
func readable(word string) bool {
	kind := func(c byte) int {
		switch {
		case c <= '9':
			return 0
		case c <= 'Z':
			return 1
		}
		return 2
	}
	changes := 0
	for i := 1; i < len(word); i++ {
		if kind(word[i]) != kind(word[i-1]) {
			changes++
		}
	}
	return changes*100 < len(word)*38 // random lower-case letters and digits have about 40%
}
