package auth

import (
	"math"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
)

const (
	// minUserToken and maxUserToken limit the length of a token that a user provides.
	minUserToken, maxUserToken = 32, 512
	// minBits is the minimum estimated entropy of such a token. The estimate of sixteen random bytes in hex is a
	// little below 128 bits, because a short text never contains all characters evenly.
	minBits = 96
	// wordBits is the maximum entropy of a character of written language.
	wordBits = 2
)

// commonPairs are the letter pairs that make up more than half of written English, and less than a tenth of
// random letters.
const commonPairs = "th he in er an re on at en nd ti es or te of ed is it al ar st to nt ng se ha as ou io le " +
	"ve co me de hi ri ro ic ne ea ra ce li ch ll be ma si om ur pr ke cl us ss wo rd"

// CheckUserToken returns an InvalidError unless a token that a user provides is strong enough to protect a
// cluster: long, without patterns, and not made of words. It examines the text only, and rejects in case of
// doubt: it mistakes one of some thousand random texts for words. It accepts the output of `openssl rand -hex 32`
// and uuidgen.
func CheckUserToken(field, token string) error {
	switch {
	case len(token) < minUserToken:
		return weak(field, "it has %d characters", len(token))
	case len(token) > maxUserToken:
		return fleet.Invalid(field, "a token has at most %d characters", maxUserToken)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return fleet.Invalid(field, "a token must be printable ASCII without spaces, because it is sent in a header")
	}
	if bits := estimateBits(token); bits < minBits {
		return weak(field, "its estimated strength is %d bits; repetitions, sequences and words add little", int(bits))
	}
	return nil
}

func weak(field, format string, args ...any) error {
	invalid := fleet.Invalid(field, format, args...).(*fleet.InvalidError) //nolint:errorlint,forcetypeassert // just made
	invalid.Problem = "the token is too weak: " + invalid.Problem +
		". Use at least 32 random characters, for example the output of `openssl rand -hex 32`, or omit the token and the server creates one"
	return invalid
}

// estimateBits estimates how many bits an attacker has to guess.
func estimateBits(token string) float64 {
	rest := unpredictable(token)
	perChar := entropy(rest)
	if wordlike(token) {
		perChar = min(perChar, wordBits)
	}
	return perChar * float64(len(rest))
}

// unpredictable removes the characters that an attacker can predict: the rest of a sequence such as 1234 or aaaa,
// and repetitions of an earlier part of the token.
func unpredictable(token string) string {
	const length = 4
	lower := strings.ToLower(token)
	var out strings.Builder
	for i := range len(token) {
		if i+1 >= length {
			tail := lower[i+1-length : i+1]
			if sequence(tail) || strings.Contains(lower[:i], tail) {
				continue
			}
		}
		out.WriteByte(token[i])
	}
	return out.String()
}

func sequence(s string) bool {
	step := int(s[1]) - int(s[0])
	if step < -1 || step > 1 {
		return false
	}
	for i := 2; i < len(s); i++ {
		if int(s[i])-int(s[i-1]) != step {
			return false
		}
	}
	return true
}

// entropy returns the Shannon entropy in bits per character.
func entropy(s string) float64 {
	var counts [128]int
	for i := range len(s) {
		counts[s[i]]++
	}
	var bits float64
	for _, n := range counts {
		if n > 0 {
			p := float64(n) / float64(len(s))
			bits -= p * math.Log2(p)
		}
	}
	return bits
}

// wordlike reports whether the letters follow each other like in words.
func wordlike(token string) bool {
	// Fewer pairs are not significant: random hex contains a few common ones by chance.
	const enough = 16
	letters := strings.ToLower(token)
	pairs, common := 0, 0
	for i := 1; i < len(letters); i++ {
		if !letter(letters[i-1]) || !letter(letters[i]) {
			continue
		}
		pairs++
		if strings.Contains(commonPairs, letters[i-1:i+1]) {
			common++
		}
	}
	return pairs >= enough && common*5 > pairs*2
}

func letter(c byte) bool { return 'a' <= c && c <= 'z' }
