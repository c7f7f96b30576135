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
// [Stringify] and [AppendStringify] write this form, [Check] and [Canonical]
// recognise it in one scan. The places where it differs from RFC 8785 are the
// key order, the lone surrogates and the numbers that RFC 8785 refuses.
//
// # Values
//
// A value is a slice of canonical bytes: nil stands for "absent" (undefined).
// Every accessor but Check, CheckFields, Canonical, AppendStringify, Stringify
// and ReplaceBadUTF8 requires canonical input, and returns sub-slices of it
// without copying, capped so that an append cannot write into the original.
// Asked for what a value is not, an accessor returns nil, zero or false; on
// other input it returns something, but does not panic.
//
// A key is given and compared as a decoded string. Get, Members, Elements, Len
// and Index walk over the value from its start; [Fields] finds several members
// in one walk, and [CheckFields] in the scan that checks a line.
//
// # Strings
//
// A decoded string is a Go string in WTF-8: well-formed UTF-8, except that a
// lone surrogate is its three-byte generalised encoding. Two halves that meet
// when strings are concatenated must be joined; see [Concat], [AppendStr],
// [AppendString] and [AppendContent]. Equal strings have equal bytes.
//
// # Numbers
//
// A canonical number is the shortest decimal that reads back as its double, and
// is taken for the value of that double: of 9007199254740993 (a double ends in
// ...992) something is lost, of 0.1 (no double is a tenth) nothing is.
//
// # Example
//
//	in        {"b": 1.0, "2": "\u0041", "b": -0}
//	canonical {"2":"A","b":0}
//	facts     Whitespace | KeyOrder | DuplicateKey | NumberForm | NegativeZero | EscapeForm
//
// What is not checked: whether a text has a meaning, and how large it is.
package jsjson

// Facts says what a scan noticed about a JSON text. The zero value means the
// text is canonical and unremarkable.
type Facts uint16

const (
	// Whitespace: insignificant white space between tokens.
	Whitespace Facts = 1 << iota

	// KeyOrder: an integer-like key stands behind another key or a larger one.
	KeyOrder

	// DuplicateKey: a key occurs twice in one object, as decoded strings.
	DuplicateKey

	// NumberForm: a number is written otherwise than its canonical form, which
	// is the same decimal number, as 1.0 or 1e3.
	NumberForm

	// NumberLoss: a number is not the same decimal number as its canonical form,
	// as 9007199254740993, 0.30000000000000001 or 1e-400.
	NumberLoss

	// NumberOverflow: a number beyond the doubles, written back as null.
	NumberOverflow

	// NegativeZero: -0 in any spelling, or what becomes it; written back as 0.
	NegativeZero

	// EscapeForm: a string is escaped otherwise than JSON.stringify would.
	EscapeForm

	// BadUTF8: ill-formed UTF-8 in a string, replaced by U+FFFD. Outside of
	// strings it is a syntax error.
	BadUTF8

	// LoneSurrogate: the escape of a lone surrogate: canonical, but not Unicode
	// text.
	LoneSurrogate
)

// Canonical reports whether the text equals its own canonical form.
// LoneSurrogate alone does not make a text non-canonical.
func (f Facts) Canonical() bool { return f&^LoneSurrogate == 0 }

// A SyntaxError is the first place where a text leaves the grammar.
type SyntaxError struct {
	Offset int    // of the first wrong byte, from 0; len(input) at a premature end
	Want   string // what was expected, e.g. "value", "',' or '}'"
	Got    string // what stands there, in printable ASCII: e.g. "'x'", "end of input", "0x07", "U+FEFF"
}

// Kind is the type of a value.
type Kind byte

// The kinds of JSON values, and Absent for no value (undefined).
const (
	Absent Kind = iota
	Null
	Bool
	Number
	String
	Array
	Object
)
