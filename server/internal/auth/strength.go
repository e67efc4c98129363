package auth

import (
	"math"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
)

const (
	// minChosen and maxChosen bound the length of a token that a user brings.
	minChosen, maxChosen = 32, 512
	// minBits is what a chosen token must look worth. Sixteen random bytes in hex look worth a little
	// less than the 128 bits that they are, because a short text never shows every character evenly.
	minBits = 96
	// wordBits is what a character of written language is worth, at most.
	wordBits = 2
)

// commonPairs are the letter pairs that make up more than half of written English, and less than a
// tenth of random letters.
const commonPairs = "th he in er an re on at en nd ti es or te of ed is it al ar st to nt ng se ha as ou io le " +
	"ve co me de hi ri ro ic ne ea ra ce li ch ll be ma si om ur pr ke cl us ss wo rd"

// CheckChosen returns an InvalidError unless a token that a user brings is strong enough to guard a
// cluster: long, without patterns, and not made of words. It judges the text, not where it came from,
// so it errs on the side of refusing: of random texts it takes one in some thousands for words. What
// `openssl rand -hex 32` and uuidgen print is accepted.
func CheckChosen(field, token string) error {
	switch {
	case len(token) < minChosen:
		return weak(field, "it has %d characters", len(token))
	case len(token) > maxChosen:
		return fleet.Invalid(field, "a token has at most %d characters", maxChosen)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return fleet.Invalid(field, "a token is printable ASCII without spaces, because it travels in a header")
	}
	if bits := worth(token); bits < minBits {
		return weak(field, "by its look it is worth %d bits; repetitions, sequences and words count for little", int(bits))
	}
	return nil
}

func weak(field, format string, args ...any) error {
	invalid := fleet.Invalid(field, format, args...).(*fleet.InvalidError) //nolint:errorlint,forcetypeassert // just made
	invalid.Problem = "the token is too weak: " + invalid.Problem +
		". Strong enough is at least 32 random characters, such as `openssl rand -hex 32` prints; or leave it out and one is made"
	return invalid
}

// worth estimates how many bits a guesser has to find out.
func worth(token string) float64 {
	fresh := unpredicted(token)
	perChar := evenness(fresh)
	if wordlike(token) {
		perChar = min(perChar, wordBits)
	}
	return perChar * float64(len(fresh))
}

// unpredicted leaves out what a guesser gets for nothing: the rest of a sequence such as 1234 or
// aaaa, and what repeats an earlier stretch of the token.
func unpredicted(token string) string {
	const stretch = 4
	lower := strings.ToLower(token)
	var out strings.Builder
	for i := range len(token) {
		if i+1 >= stretch {
			tail := lower[i+1-stretch : i+1]
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

// evenness is the Shannon entropy of the characters, in bits per character.
func evenness(s string) float64 {
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

// wordlike reports whether the letters follow each other as they do in words.
func wordlike(token string) bool {
	// Fewer pairs than this say nothing: random hex has a few common ones by chance.
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
