package logfmt

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Fixed names of a session root (PHYSICAL §1.2).
const (
	noCwdName    = "_no-cwd"
	bucketPrefix = "cwd-"
	stagingName  = ".dsh-mkdir-"
	sidecarName  = ".summary.json"
	maxSlug      = 251
)

// ErrEmptySegment is the error for an id or a cwd without characters: it has no
// place in a root.
var ErrEmptySegment = errors.New("an empty name has no path segment")

// EncodeSegment gives the name under which a session id, as WTF-8, is stored
// (PHYSICAL §1.3): each UTF-16 code unit outside A-Z a-z 0-9 . _ - becomes ~ and
// four hex digits. It is the inverse of DecodeSegment.
func EncodeSegment(id string) (string, error) {
	switch id {
	case "":
		return "", ErrEmptySegment
	case ".":
		return "~002E", nil
	case "..":
		return "~002E~002E", nil
	}
	b := make([]byte, 0, len(id)+8)
	for s := id; s != ""; {
		if keptUnit(s[0]) {
			b = append(b, s[0])
			s = s[1:]
			continue
		}
		u, n := unit(s)
		b = appendEscape(b, u)
		s = s[n:]
	}
	return string(b), nil
}

// DecodeSegment gives the id, as WTF-8, that is stored under a name. It refuses
// names that EncodeSegment gives for no id.
func DecodeSegment(name string) (string, error) {
	switch name {
	case "":
		return "", ErrEmptySegment
	case "~002E":
		return ".", nil
	case "~002E~002E":
		return "..", nil
	case ".", "..":
		return "", fmt.Errorf("byte 0: %q is no encoded name", name)
	}
	b := make([]byte, 0, len(name))
	var high rune // a high surrogate, waiting for its half
	flush := func() {
		if high != 0 {
			b = appendWTF8(b, high)
			high = 0
		}
	}
	for i := 0; i < len(name); {
		c := name[i]
		if c != '~' {
			if !keptUnit(c) {
				return "", fmt.Errorf("byte %d: a name holds only A-Z a-z 0-9 . _ - and escapes, got byte %#02x", i, c)
			}
			flush()
			b = append(b, c)
			i++
			continue
		}
		u, ok := escape(name[i:])
		if !ok {
			return "", fmt.Errorf("byte %d: ~ without four upper-case hex digits", i)
		}
		if u < 0x80 && keptUnit(byte(u)) {
			return "", fmt.Errorf("byte %d: %s stands for %q, which is never escaped there", i, name[i:i+5], u)
		}
		i += 5
		switch {
		case u >= 0xDC00 && u < 0xE000 && high != 0:
			b = utf8.AppendRune(b, (high-0xD800)<<10+(u-0xDC00)+0x10000)
			high = 0
		case u >= 0xD800 && u < 0xDC00:
			flush()
			high = u
		default:
			flush()
			b = appendWTF8(b, u)
		}
	}
	flush()
	return string(b), nil
}

// ProjectKey gives the name of the project directory for a working directory
// (PHYSICAL §1.4), written in either path style. It cannot be inverted.
func ProjectKey(cwd string) (string, error) {
	if cwd == "" {
		return "", ErrEmptySegment
	}
	var b []byte
	run := false
	for s := cwd; s != ""; {
		switch c := s[0]; {
		case c == '/' || c == '\\' || c == ':':
			if !run {
				b = append(b, '-')
			}
			run = true
			s = s[1:]
			continue
		case keptUnit(c):
			b = append(b, c)
			s = s[1:]
		default:
			u, n := unit(s)
			b = appendEscape(b, u)
			s = s[n:]
		}
		run = false
	}
	slug := strings.TrimLeft(string(b), "-")
	if slug == "" {
		slug = "root"
	}
	// An escape may be cut in two.
	if len(slug) > maxSlug {
		slug = slug[:maxSlug]
	}
	return "--" + slug + "--", nil
}

// CwdBucket gives the name of the bucket for a working directory in the flat
// layout (PHYSICAL §1.2).
func CwdBucket(cwd string) string {
	h := sha256.New()
	for s := cwd; s != ""; {
		if r, n := utf8.DecodeRuneInString(s); r != utf8.RuneError || n > 1 {
			h.Write([]byte(s[:n]))
			s = s[n:]
			continue
		}
		_, n := unit(s)
		h.Write([]byte("\xef\xbf\xbd"))
		s = s[n:]
	}
	return bucketPrefix + hex.EncodeToString(h.Sum(nil))[:12]
}

// keptUnit reports whether a character stands for itself in a name.
func keptUnit(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
}

// unit reads one character of WTF-8: a code point, a surrogate, or a byte that
// is neither, which counts as U+FFFD.
func unit(s string) (r rune, n int) {
	if r, n = utf8.DecodeRuneInString(s); r != utf8.RuneError || n > 1 {
		return r, n
	}
	if len(s) >= 3 && s[0] == 0xED && s[1]&0xE0 == 0xA0 && s[2]&0xC0 == 0x80 {
		return 0xD000 | rune(s[1]&0x3F)<<6 | rune(s[2]&0x3F), 3
	}
	return utf8.RuneError, 1
}

func appendEscape(b []byte, r rune) []byte {
	if r > 0xFFFF {
		r -= 0x10000
		b = appendEscape(b, 0xD800+r>>10)
		r = 0xDC00 + r&0x3FF
	}
	const digits = "0123456789ABCDEF"
	return append(b, '~', digits[r>>12], digits[r>>8&15], digits[r>>4&15], digits[r&15])
}

// escape reads ~XXXX.
func escape(s string) (rune, bool) {
	if len(s) < 5 || s[0] != '~' {
		return 0, false
	}
	for _, c := range []byte(s[1:5]) {
		if !(c >= '0' && c <= '9' || c >= 'A' && c <= 'F') {
			return 0, false
		}
	}
	n, err := strconv.ParseUint(s[1:5], 16, 16)
	return rune(n), err == nil
}

// appendWTF8 appends a code unit, surrogates as three bytes.
func appendWTF8(b []byte, r rune) []byte {
	if r >= 0xD800 && r < 0xE000 {
		return append(b, 0xED, 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F)
	}
	return utf8.AppendRune(b, r)
}

// isProjectName reports whether a directory name is one that the harness gives
// to a project directory.
func isProjectName(name string) bool {
	if name == noCwdName {
		return true
	}
	slug, ok := strings.CutPrefix(name, "--")
	if !ok || len(slug) <= 2 || len(slug) > maxSlug+2 || !strings.HasSuffix(slug, "--") || slug[0] == '-' {
		return false
	}
	for i := range len(slug) {
		if !keptUnit(slug[i]) && slug[i] != '~' {
			return false
		}
	}
	return true
}

// isBucketName reports whether a directory name is a bucket of the flat layout.
func isBucketName(name string) bool {
	h, ok := strings.CutPrefix(name, bucketPrefix)
	return ok && len(h) == 12 && isLowerHex(h)
}

func isLowerHex(s string) bool {
	for _, c := range []byte(s) {
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f') {
			return false
		}
	}
	return true
}

// logName reads the name of a log in a session directory (FORMATS-V1-V4 §2.1).
func logName(name string) (generation int64, zstd, ok bool) {
	generation, ok = GenerationOfName(name)
	return generation, strings.HasSuffix(name, zstdSuffix), ok
}

// flatName reads the name of a log in the flat layout: an encoded id and
// .jsonl, with .zstd behind it or not.
func flatName(name string) (segment string, zstd, ok bool) {
	s, zstd := strings.CutSuffix(name, zstdSuffix)
	s, ok = strings.CutSuffix(s, ".jsonl")
	return s, zstd, ok
}

// isTempName reports whether a name is one under which the harness writes a file
// before it publishes it (PHYSICAL §1.6, FORMATS-V1-V4 §2.1).
func isTempName(name string) bool {
	s, ok := strings.CutSuffix(name, ".tmp")
	if !ok {
		return false
	}
	if m, ok := strings.CutPrefix(s, "session.migration."); ok {
		h, _, found := strings.Cut(m, ".jsonl")
		return found && len(h) == 16 && isLowerHex(h)
	}
	i := strings.LastIndexByte(s, '.')
	return i > 0 && len(s)-i == 13 && isLowerHex(s[i+1:])
}

// exportName is the name that an export gives to an id (PHYSICAL §1.7): every
// UTF-16 code unit outside A-Z a-z 0-9 _ - becomes one _.
func exportName(id string) string {
	b := make([]byte, 0, len(id))
	for s := id; s != ""; {
		if c := s[0]; keptUnit(c) && c != '.' {
			b = append(b, c)
			s = s[1:]
			continue
		}
		u, n := unit(s)
		if b = append(b, '_'); u > 0xFFFF {
			b = append(b, '_')
		}
		s = s[n:]
	}
	return string(b)
}
