package logfmt

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
)

// parseHeader reads the header record from a complete first line, making the
// checks of PHYSICAL §2.2 in the order of the harness, but by the rules of the
// era the header shows, not of the newest one. What an era settles only with the
// events, Header.Fault says. A nil header comes with a defect of class Corrupt or
// Unsupported; a header may come with an Unsupported defect.
func parseHeader(line []byte, pos Position) (*Header, *Defect) { return readHeader(line, pos, false) }

// readHeader is parseHeader, and with fixture takes the header of a projected
// fixture, which may lack version and delegationDepth (PHYSICAL §1.7).
func readHeader(line []byte, pos Position, fixture bool) (*Header, *Defect) {
	bad := func(class Class, rule, format string, args ...any) *Defect {
		return &Defect{Rule: rule, Class: class, Pos: pos, Seq: -1, Message: fmt.Sprintf(format, args...)}
	}
	canon, facts, err := jsjson.Stringify(line)
	if err != nil {
		jd := jsonDefect(line, err)
		d := bad(Corrupt, RuleHeader, "header record: %s", jd.Message)
		d.At, d.Err = jd.At, err
		d.Hint = "the first line must be the header record, written with the log; without it nothing can be continued"
		if bytes.HasPrefix(line, []byte("\xef\xbb\xbf")) {
			d.At = 0
			d.Message = "header record: not valid JSON: a byte order mark stands before it"
			d.Hint = "some editor added the three bytes EF BB BF; the harness refuses them"
		}
		return nil, d
	}
	h := &Header{Pos: pos, Facts: uint16(facts)}
	h.Raw = bytes.Clone(canon)
	if h.Raw[0] != '{' {
		return nil, bad(Corrupt, RuleHeader, "header record: expected an object, got %s", valueName(h.Raw))
	}

	var version, id, created, depth, typ, origin, preset, seeded []byte
	var retired []string
	for k, v := range jsjson.Members(h.Raw) {
		switch string(k) {
		case `"type"`:
			typ = v
		case `"version"`:
			version = v
		case `"id"`:
			id = v
		case `"createdAt"`:
			created = v
		case `"cwd"`:
			if s, ok := jsjson.Str(v); ok {
				h.Cwd = &s
				if !absolute(s) && !strings.HasPrefix(s, tokenCwd) {
					h.Fault |= HeaderCwdRelative
				}
			} else {
				h.Fault |= HeaderCwd
			}
		case `"parentSession"`:
			if s, ok := jsjson.Str(v); ok {
				h.ParentSession = &s
			} else {
				h.Fault |= HeaderParent
			}
		case `"seedLength"`:
			if n, ok := safeInt(v); ok && n >= 0 {
				h.SeedLength = &n
			} else {
				h.Fault |= HeaderSeed
			}
		case `"isSeeded"`:
			if seeded = v; string(v) == "true" || string(v) == "false" {
				is := string(v) == "true"
				h.Seeded = &is
			} else {
				h.Fault |= HeaderSeeded
			}
		case `"origin"`:
			origin = v
		case `"delegationDepth"`:
			depth = v
		case `"agentPreset"`:
			preset = v
		case `"sandboxMode"`, `"approvalPolicy"`:
			retired = append(retired, string(k[1:len(k)-1]))
			fallthrough
		default:
			h.Fault |= HeaderUnknownKey
			s, _ := jsjson.Str(k)
			h.Unknown = append(h.Unknown, s)
		}
	}

	// The version comes before the shape: a later generation may look different.
	numeric := isNumber(version, false)
	if overflow := facts&jsjson.NumberOverflow != 0; overflow && string(version) == "null" {
		if raw := rawMember(line, `"version"`); isNumber(raw, false) {
			d := bad(Unsupported, RuleFormat, "")
			d.Message, d.Hint = foreign(raw)
			return nil, d
		}
	}
	if numeric && string(version) != "0" {
		june := string(version) == "1" && depth == nil && origin == nil && preset == nil && seeded == nil &&
			h.SeedLength == nil && h.Fault&HeaderSeed == 0
		n, ok := safeInt(version)
		if ok {
			h.Version, h.Generation = n, n
		}
		switch {
		case june:
			h.Fault |= HeaderJune
			h.Generation = 0
		case !ok || GenerationOf(n) == nil:
			d := bad(Unsupported, RuleFormat, "")
			d.Message, d.Hint = foreign(version)
			if str, ok := jsjson.Str(id); ok {
				h.ID = str
			}
			return h, d
		}
	}
	if g := h.Format(); g.Header == nil && seeded != nil {
		// Only later generations have this key; here it is one of no meaning.
		h.Seeded = nil
		h.Fault = h.Fault&^HeaderSeeded | HeaderUnknownKey
		h.Unknown = append(h.Unknown, "isSeeded")
	}

	shape := func(what string, args ...any) (*Header, *Defect) {
		d := bad(Corrupt, RuleHeader, "header record: "+what, args...)
		d.Hint = "the first line must be the header record that the harness wrote"
		return nil, d
	}
	if str, _ := jsjson.Str(typ); str != "session" || typ == nil {
		if jsjson.Get(h.Raw, "seq") != nil || jsjson.Get(h.Raw, "seq0") != nil {
			nh, d := shape("missing, the first line is an event with seq %s", clip(first(jsjson.Get(h.Raw, "seq"), jsjson.Get(h.Raw, "seq0"))))
			d.Hint = "the first line was lost, or this is a file of the June 2026 telemetry example, which wrote events without a header"
			return nh, d
		}
		return shape(`expected type "session", got %s`, valueName(typ))
	}
	if fixture && version == nil {
		h.Fault |= HeaderNoVersion
	} else if !numeric {
		return shape("expected a number as version, got %s", valueName(version))
	}
	g := h.Format()
	if g.Header != nil {
		// The generation fixes the keys, whatever the era of a key in generation 0.
		if key := h.checkExact(g); key != "" && !(fixture && key == "delegationDepth") {
			return shape("%s is missing, which every header of generation %d has", key, g.Version)
		}
		if h.Fault&HeaderSeeded != 0 {
			return shape("expected true or false as isSeeded, got %s", valueName(seeded))
		}
		retired = nil
	}
	var ok bool
	if h.ID, ok = jsjson.Str(id); !ok {
		return shape("expected a string as id, got %s", valueName(id))
	}
	late := origin != nil || preset != nil || g.Header != nil // of a build that checks the rest strictly
	if !isNumber(created, false) {
		return shape("expected a number as createdAt, got %s", valueName(created))
	}
	if h.CreatedAt, ok = safeInt(created); !ok || h.CreatedAt < 0 || facts&jsjson.NegativeZero != 0 && negativeZero(rawMember(line, `"createdAt"`)) {
		if late {
			return shape("createdAt must be a non-negative safe integer, got %s", clip(rawMember(line, `"createdAt"`)))
		}
		if f, ok := jsjson.Float(created); ok && f > -maxSafe && f < maxSafe {
			h.CreatedAt = int64(f)
		}
		h.Fault |= HeaderCreatedAt
	}
	if depth != nil {
		n, ok := safeInt(depth)
		if !ok || n < 0 || facts&jsjson.NegativeZero != 0 && negativeZero(rawMember(line, `"delegationDepth"`)) {
			return shape("delegationDepth must be a non-negative safe integer, got %s", clip(rawMember(line, `"delegationDepth"`)))
		}
		h.DelegationDepth = &n
	} else if h.Fault |= HeaderNoDepth; late && !fixture {
		return shape("delegationDepth is missing, though %s was written only together with it", lateKey(origin))
	}
	if origin != nil {
		str, ok := jsjson.Str(origin)
		if !ok || str != "subagent" {
			return shape(`origin must be absent or "subagent", got %s`, valueName(origin))
		}
		h.Origin = &str
	}
	if preset != nil {
		str, ok := jsjson.Str(preset)
		if !ok {
			return shape("agentPreset must be absent or a string, got %s", valueName(preset))
		}
		h.AgentPreset = &str
	}
	if retired != nil {
		h.Fault |= HeaderRetired
		d := bad(Unsupported, RuleFormat, "the header holds %s, which only a development build wrote and no release reads", strings.Join(retired, " and "))
		d.Hint = "the events are read by the rules of the released builds"
		return h, d
	}
	return h, nil
}

func lateKey(origin []byte) string {
	if origin != nil {
		return "origin"
	}
	return "agentPreset"
}

func first(a, b []byte) []byte {
	if a != nil {
		return a
	}
	return b
}

func negativeZero(tok []byte) bool {
	if len(tok) == 0 || tok[0] != '-' {
		return false
	}
	mant, _, _ := strings.Cut(strings.ToLower(string(tok[1:])), "e")
	return strings.Trim(mant, "0.") == ""
}

// absolute reports whether a path is absolute on POSIX or on Windows. Which of
// the two the harness ran on, the log does not say.
func absolute(p string) bool {
	if strings.HasPrefix(p, "/") || strings.HasPrefix(p, `\`) {
		return true
	}
	return len(p) >= 3 && p[1] == ':' && (p[2] == '\\' || p[2] == '/') &&
		(p[0]|0x20 >= 'a' && p[0]|0x20 <= 'z')
}

// valueName shows a scalar and names anything else, for a message.
func valueName(v []byte) string {
	if len(v) == 0 {
		return "nothing"
	}
	switch v[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	}
	return clip(v)
}

// rawMember returns the value of the last top-level member of a valid JSON
// object whose key token is key, as it is written.
func rawMember(obj []byte, key string) (val []byte) {
	depth, start := 0, -1
	for i := 0; i < len(obj); i++ {
		switch c := obj[i]; c {
		case '"':
			j := i + 1
			for j < len(obj) && obj[j] != '"' {
				if obj[j] == '\\' {
					j++
				}
				j++
			}
			if j >= len(obj) {
				return val
			}
			if depth == 1 && start < 0 && string(obj[i:j+1]) == key {
				if k := bytes.IndexByte(obj[j:], ':'); k >= 0 {
					start = j + k + 1
					j = start - 1
				}
			}
			i = j
		case '{', '[':
			depth++
		case ',', '}', ']':
			if depth == 1 && start >= 0 {
				val = bytes.Trim(obj[start:i], " \t\r\n")
				start = -1
			}
			if c != ',' {
				depth--
			}
		}
	}
	return val
}
