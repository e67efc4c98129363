package wording

import (
	"strconv"
	"strings"
)

// Count is "1 agent" or "3 agents". Of a phrase the first word is the one that is counted.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	first, rest, _ := strings.Cut(noun, " ")
	if stem, ok := strings.CutSuffix(first, "y"); ok {
		first = stem + "ies"
	} else {
		first += "s"
	}
	return strings.TrimSpace(strconv.Itoa(n) + " " + first + " " + rest)
}

// Suffix puts a colon before a message that follows another one; "" stays empty.
func Suffix(message string) string {
	if message == "" {
		return ""
	}
	return ": " + message
}
