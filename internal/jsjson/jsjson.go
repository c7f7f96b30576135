// Package jsjson is the JSON domain of JavaScript, over bytes.
//
// A session log is written by V8's JSON.stringify, so a logged value is its own
// canonical form. The package answers, without decoding into maps, what
// JSON.parse would make of some bytes and what JSON.stringify would write back.
//
// # Grammar
//
// What JSON.parse accepts (RFC 8259, PHYSICAL §9.2), no more: no byte order
// mark, comments, trailing commas, leading zeros or raw control characters.
// Nesting is bounded by memory, never by the stack.
//
// # Canonical form
//
// Exactly JSON.stringify(JSON.parse(x)) (PHYSICAL §9.3): no whitespace;
// integer-like keys (canonical decimals 0 to 4294967294) first and ascending,
// the others in order of first appearance; of duplicate keys the last value at
// the place of the first; the shortest number that reads back as the same
// double, 1e400 as null, -0 as 0; short escapes, other controls as \u00xx, lone
// surrogates as lower-case \udxxx, everything else raw. Ill-formed UTF-8 is
// replaced first, as the WHATWG decoder does, one U+FFFD per maximal subpart.
//
// # Values
//
// A value is a slice of canonical bytes: nil stands for "absent" (undefined).
// Every accessor but Check, Canonical, AppendStringify and Stringify requires
// canonical input, and returns sub-slices of it without copying.
//
// # Strings
//
// A decoded string is a Go string in WTF-8: well-formed UTF-8, except that a
// lone surrogate is its three-byte generalised encoding. Two halves that meet
// when strings are concatenated must be joined; see Concat.
package jsjson

// Facts says what a scan noticed about a JSON text. The zero value means the
// text is canonical and unremarkable.
type Facts uint16

const (
	Whitespace     Facts = 1 << iota // insignificant white space between tokens
	KeyOrder                         // an integer-like key not at its place
	DuplicateKey                     // a key occurs twice in one object
	NumberForm                       // a number is not in its shortest form, its value is kept
	NumberLoss                       // an integer or decimal literal that names another number than the double it becomes
	NumberOverflow                   // a number beyond the doubles, written back as null
	NegativeZero                     // -0, written back as 0
	EscapeForm                       // a string escaped otherwise than JSON.stringify would
	BadUTF8                          // ill-formed UTF-8, replaced by U+FFFD
	LoneSurrogate                    // a lone surrogate escape: canonical, but not Unicode text
)

// Canonical reports whether the text equals its own canonical form.
// LoneSurrogate alone does not make a text non-canonical.
func (f Facts) Canonical() bool { return f&^LoneSurrogate == 0 }

// A SyntaxError is the first place where a text leaves the grammar.
type SyntaxError struct {
	Offset int    // of the first wrong byte, from 0; len(input) at a premature end
	Want   string // what was expected, e.g. "value", "',' or '}'"
	Got    string // what stands there, printable: e.g. "'x'", "end of input", "0x07"
}

// Kind is the type of a value.
type Kind byte

const (
	Absent Kind = iota
	Null
	Bool
	Number
	String
	Array
	Object
)
