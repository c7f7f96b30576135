// Package plural writes numbers with their nouns, as in "1 request" and
// "2 requests". It is the one place that forms plurals in messages.
package plural

import (
	"strconv"
	"strings"
)

// Count writes a number with its noun, given in the singular.
func Count[N ~int | ~int64](n N, noun string) string {
	if n != 1 {
		noun = Of(noun)
	}
	return strconv.FormatInt(int64(n), 10) + " " + noun
}

// Of is the plural of a noun, or of some words that end in one.
func Of(noun string) string {
	switch {
	case strings.HasSuffix(noun, "ry"):
		return strings.TrimSuffix(noun, "y") + "ies"
	case strings.HasSuffix(noun, "s"):
		return noun + "es"
	}
	return noun + "s"
}
