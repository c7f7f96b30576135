package fold

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
)

// Tokens that stand for real text in repository fixtures (SEMANTICS §12.2).
const (
	tokenSystem = "{{system}}"
	tokenTools  = "{{tools}}"
	tokenPrefix = "{{messagePrefix}}"
)

// ScrubbedDelta reports whether a delta holds fixture tokens in place of prompt
// lines, tool schemas or prefix messages, and so cannot be applied (SEMANTICS
// §5.5, §12.2).
func ScrubbedDelta(delta []byte) bool {
	for line := range jsjson.Elements(jsjson.Get(jsjson.Get(delta, "system"), "insert")) {
		if jsjson.StrEq(line, tokenSystem) {
			return true
		}
	}
	tools := jsjson.Get(delta, "tools")
	return scrubbedTools(tools) || scrubbedTools(jsjson.Get(tools, "added")) || scrubbedTools(jsjson.Get(tools, "changed")) ||
		scrubbedPrefix(jsjson.Get(delta, "messagePrefix"))
}

// scrubDelta is what a delta of a fixture makes of a header: a config replaces
// the old one, and of prompt, tools and prefix, whose lines and names refer to
// texts that are not there, only tokens are left where the delta changes them.
func scrubDelta(h *EpochHeader, delta []byte) *EpochHeader {
	out := *h
	if v := jsjson.Get(delta, "config"); v != nil {
		out.Config = v
	}
	for _, m := range [...]struct {
		key, token string
		to         *[]byte
	}{{"system", tokenSystem, &out.System}, {"tools", tokenTools, &out.Tools}, {"messagePrefix", tokenPrefix, &out.MessagePrefix}} {
		switch v := jsjson.Get(delta, m.key); {
		case v == nil:
		case m.key == "messagePrefix" && len(v) == len("[]"):
			*m.to = nil
		default:
			*m.to = jsjson.AppendQuote(nil, m.token)
		}
	}
	return &out
}

func scrubbedTools(tools []byte) bool {
	if jsjson.StrEq(tools, tokenTools) {
		return true
	}
	for tool := range jsjson.Elements(tools) {
		if jsjson.StrEq(tool, tokenTools) {
			return true
		}
		for _, v := range jsjson.Members(tool) {
			if jsjson.StrEq(v, tokenTools) {
				return true
			}
		}
	}
	return false
}

func scrubbedPrefix(prefix []byte) bool {
	if jsjson.StrEq(prefix, tokenPrefix) {
		return true
	}
	for m := range jsjson.Elements(prefix) {
		if jsjson.StrEq(m, tokenPrefix) {
			return true
		}
	}
	return false
}

// DiffHeader returns the delta that a writer of E3 to E5 tries between two
// headers, as the data of its event (SEMANTICS §5.5): keys system, tools,
// config, messagePrefix, only those that changed. It may fail to express the
// change; see NextHeaderEvent.
func DiffHeader(prev, next *EpochHeader) []byte {
	out := []byte{'{'}
	key := func(k string) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, '"')
		out = append(out, k...)
		out = append(out, `":`...)
	}
	if !sameValue(prev.System, next.System) {
		key("system")
		out = appendSystemDelta(out, lines(prev.System), lines(next.System))
	}
	if !sameList(prev.Tools, next.Tools) {
		key("tools")
		out = appendToolsDelta(out, prev.Tools, next.Tools)
	}
	if !ConfigEquals(prev.Config, next.Config) && next.Config != nil {
		key("config")
		out = append(out, next.Config...)
	}
	if !sameList(prev.MessagePrefix, next.MessagePrefix) {
		key("messagePrefix")
		if next.MessagePrefix == nil {
			out = append(out, emptyList...)
		} else {
			out = append(out, next.MessagePrefix...)
		}
	}
	return append(out, '}')
}

// lines splits a system prompt; an absent one has no lines, an empty one has
// one. A value that is no string counts as absent.
func lines(system []byte) []string {
	s, ok := jsjson.Str(system)
	if !ok {
		return nil
	}
	return strings.Split(s, "\n")
}

func appendSystemDelta(out []byte, a, b []string) []byte {
	start := 0
	for start < len(a) && start < len(b) && a[start] == b[start] {
		start++
	}
	end := 0
	for end < len(a)-start && end < len(b)-start && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	out = append(out, `{"keepStart":`...)
	out = strconv.AppendInt(out, int64(start), 10)
	out = append(out, `,"keepEnd":`...)
	out = strconv.AppendInt(out, int64(end), 10)
	out = append(out, `,"insert":[`...)
	for i, line := range b[start : len(b)-end] {
		if i > 0 {
			out = append(out, ',')
		}
		out = jsjson.AppendQuote(out, line)
	}
	return append(out, `]}`...)
}

// nameKey is the identity of a tool's name in a JavaScript Map or Set: the
// canonical bytes of a primitive, "" for none. An object is only itself.
func nameKey(tool []byte) (key string, ok bool) {
	v := jsjson.Get(tool, "name")
	return primitiveKey(v)
}

func primitiveKey(v []byte) (key string, ok bool) {
	switch jsjson.KindOf(v) {
	case jsjson.Array, jsjson.Object:
		return "", false
	}
	return string(v), true
}

func appendToolsDelta(out, prev, next []byte) []byte {
	before := map[string][]byte{} // the last of a name counts
	for t := range jsjson.Elements(prev) {
		if k, ok := nameKey(t); ok {
			before[k] = t
		}
	}
	after := map[string]bool{}
	var added, changed [][]byte
	for t := range jsjson.Elements(next) {
		k, ok := nameKey(t)
		if ok {
			after[k] = true
		}
		old, known := before[k]
		switch {
		case !ok || !known:
			added = append(added, t)
		case !bytes.Equal(old, t):
			changed = append(changed, t)
		}
	}
	var removed [][]byte
	for t := range jsjson.Elements(prev) {
		if k, ok := nameKey(t); !ok || !after[k] {
			name := jsjson.Get(t, "name")
			if name == nil {
				name = []byte("null")
			}
			removed = append(removed, name)
		}
	}
	out = append(out, `{"added":`...)
	out = appendList(out, added)
	out = append(out, `,"removed":`...)
	out = appendList(out, removed)
	out = append(out, `,"changed":`...)
	out = appendList(out, changed)
	return append(out, '}')
}

func appendList(out []byte, values [][]byte) []byte {
	out = append(out, '[')
	out = append(out, bytes.Join(values, []byte{','})...)
	return append(out, ']')
}

// ApplyHeaderDelta amends a header by the data of a delta event (SEMANTICS
// §5.5) and returns the result in canonical form. The values are taken as
// JavaScript takes them: ranges clamp and count from the end when negative, a
// missing or odd number is coerced. What no coercion saves is a *HeaderError.
// DeltaDefects tells how a delta departs from what a writer makes.
//
// The result shares memory with prev and delta.
func ApplyHeaderDelta(prev *EpochHeader, delta []byte) (*EpochHeader, error) {
	switch jsjson.KindOf(delta) {
	case jsjson.Absent, jsjson.Null:
		return nil, refuse("delta", RefusalNull, delta)
	}
	h := *prev
	if d := jsjson.Get(delta, "system"); d != nil {
		s, err := applySystem(prev.System, d)
		if err != nil {
			return nil, err
		}
		h.System = s
	}
	if d := jsjson.Get(delta, "tools"); d != nil {
		t, err := applyTools(prev.Tools, d)
		if err != nil {
			return nil, err
		}
		h.Tools = t
	}
	if v := jsjson.Get(delta, "config"); v != nil && jsjson.KindOf(v) != jsjson.Null {
		h.Config = v
	}
	if v := jsjson.Get(delta, "messagePrefix"); v != nil && jsjson.KindOf(v) != jsjson.Null {
		h.MessagePrefix = v
	}
	if err := h.canonicalise(); err != nil {
		return nil, err
	}
	return &h, nil
}

func applySystem(prev, d []byte) ([]byte, error) {
	if jsjson.KindOf(d) == jsjson.Null {
		return nil, refuse("system", RefusalNull, d)
	}
	if prev != nil && jsjson.KindOf(prev) != jsjson.String {
		return nil, refuse("header.system", RefusalNoMethod, prev)
	}
	old := lines(prev)
	head := old
	if v := jsjson.Get(d, "keepStart"); v != nil {
		head = old[:sliceIndex(toNumber(v), len(old))]
	}
	tail := old[sliceIndex(float64(len(old))-toNumber(jsjson.Get(d, "keepEnd")), len(old)):]
	insert, ok := iterate(jsjson.Get(d, "insert"))
	if !ok {
		return nil, refuse("system.insert", RefusalNotIterable, jsjson.Get(d, "insert"))
	}
	if len(head)+len(insert)+len(tail) == 0 {
		return nil, nil
	}
	all := make([]string, 0, len(head)+len(insert)+len(tail))
	all = append(all, head...)
	for _, v := range insert {
		if jsjson.KindOf(v) == jsjson.Null {
			all = append(all, "")
			continue
		}
		all = append(all, toString(v))
	}
	all = append(all, tail...)
	return jsjson.AppendQuote(nil, strings.Join(all, "\n")), nil
}

func applyTools(prev, d []byte) ([]byte, error) {
	if jsjson.KindOf(d) == jsjson.Null {
		return nil, refuse("tools", RefusalNull, d)
	}
	removed := map[string]bool{}
	if v := jsjson.Get(d, "removed"); v != nil && jsjson.KindOf(v) != jsjson.Null {
		list, ok := iterate(v)
		if !ok {
			return nil, refuse("tools.removed", RefusalNotIterable, v)
		}
		for _, name := range list {
			if k, ok := primitiveKey(name); ok {
				removed[k] = true
			}
		}
	}
	changed := map[string][]byte{}
	list := jsjson.Get(d, "changed")
	switch jsjson.KindOf(list) {
	case jsjson.Array:
	case jsjson.Absent, jsjson.Null:
		return nil, refuse("tools.changed", RefusalNull, list)
	default:
		return nil, refuse("tools.changed", RefusalNoMethod, list)
	}
	for t := range jsjson.Elements(list) {
		if jsjson.KindOf(t) == jsjson.Null {
			return nil, refuse("tools.changed", RefusalNull, t)
		}
		if k, ok := nameKey(t); ok {
			changed[k] = t
		}
	}
	if prev != nil && jsjson.KindOf(prev) != jsjson.Array {
		return nil, refuse("header.tools", RefusalNoMethod, prev)
	}
	var out [][]byte
	for t := range jsjson.Elements(prev) {
		if jsjson.KindOf(t) == jsjson.Null {
			return nil, refuse("header.tools", RefusalNull, t)
		}
		k, ok := nameKey(t)
		if ok && removed[k] {
			continue
		}
		if c, found := changed[k]; ok && found {
			t = c
		}
		out = append(out, t)
	}
	added, ok := iterate(jsjson.Get(d, "added"))
	if !ok {
		return nil, refuse("tools.added", RefusalNotIterable, jsjson.Get(d, "added"))
	}
	return appendList(nil, append(out, added...)), nil
}

// iterate is what the spread of a value yields: the elements of an array, the
// code points of a string, false for anything else.
func iterate(v []byte) ([][]byte, bool) {
	switch jsjson.KindOf(v) {
	case jsjson.Array:
		var out [][]byte
		for e := range jsjson.Elements(v) {
			out = append(out, e)
		}
		return out, true
	case jsjson.String:
		s, _ := jsjson.Str(v)
		var out [][]byte
		for len(s) > 0 {
			n := wtf8Len(s[0])
			if n > len(s) {
				n = len(s)
			}
			out = append(out, jsjson.AppendQuote(nil, s[:n]))
			s = s[n:]
		}
		return out, true
	}
	return nil, false
}

// wtf8Len is the length of the WTF-8 sequence that starts with byte b.
func wtf8Len(b byte) int {
	switch {
	case b < 0xc0:
		return 1
	case b < 0xe0:
		return 2
	case b < 0xf0:
		return 3
	}
	return 4
}

// sliceIndex is the place in a list of n that Array.prototype.slice takes an
// index for.
func sliceIndex(f float64, n int) int {
	switch f = math.Trunc(f); {
	case math.IsNaN(f):
		return 0
	case f < 0:
		return int(max(float64(n)+f, 0))
	case f >= float64(n):
		return n
	}
	return int(f)
}

// toNumber is Number(v); NaN for an absent value.
func toNumber(v []byte) float64 {
	switch jsjson.KindOf(v) {
	case jsjson.Null:
		return 0
	case jsjson.Bool:
		if string(v) == "true" {
			return 1
		}
		return 0
	case jsjson.Number:
		f, ok := jsjson.Float(v)
		if !ok {
			return math.NaN()
		}
		return f
	case jsjson.String, jsjson.Array:
		return stringToNumber(toString(v))
	}
	return math.NaN()
}

func stringToNumber(s string) float64 {
	s = jsjson.TrimJS(s)
	if s == "" {
		return 0
	}
	if len(s) > 2 && s[0] == '0' {
		base := 0.0
		switch s[1] | 0x20 {
		case 'x':
			base = 16
		case 'o':
			base = 8
		case 'b':
			base = 2
		}
		if base > 0 {
			f := 0.0
			for i := 2; i < len(s); i++ {
				d := strings.IndexByte("0123456789abcdef", s[i]|0x20)
				if s[i] < '0' || d < 0 || float64(d) >= base {
					return math.NaN()
				}
				f = f*base + float64(d)
			}
			return f
		}
	}
	digits := strings.TrimLeft(s, "+-")
	switch {
	case len(s)-len(digits) > 1:
		return math.NaN()
	case digits == "Infinity":
		if s[0] == '-' {
			return math.Inf(-1)
		}
		return math.Inf(1)
	}
	// Beyond these bytes ParseFloat knows forms that JavaScript does not.
	if strings.Trim(digits, "0123456789.eE+-") != "" {
		return math.NaN()
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !math.IsInf(f, 0) {
		return math.NaN()
	}
	return f
}

// toString is String(v) of a value that is not null. Arrays are joined at every
// depth without recursion.
func toString(v []byte) string {
	switch jsjson.KindOf(v) {
	case jsjson.String:
		s, _ := jsjson.Str(v)
		return s
	case jsjson.Object:
		return "[object Object]"
	case jsjson.Array:
	default:
		return string(v)
	}
	var b []string
	for i := 0; i < len(v); {
		switch v[i] {
		case '[', ']':
			i++
		case ',':
			b = append(b, ",")
			i++
		default:
			end := jsjson.Skip(v, i)
			if e := v[i:end]; jsjson.KindOf(e) != jsjson.Null {
				b = append(b, toString(e))
			}
			i = end
		}
	}
	return jsjson.Concat(b...)
}

// A DeltaDefect is one way in which a delta departs from what a writer makes
// (SEMANTICS §5.5). The harness applies most of them all the same.
type DeltaDefect struct {
	Path    string // within data, e.g. "system.keepStart"
	Problem string // e.g. "is 9, more than the 3 lines before"
}

func (d DeltaDefect) String() string { return d.Path + ": " + d.Problem }

// DeltaDefects lists how a delta departs from what a writer makes after prev
// (SEMANTICS §5.5). It returns nothing for a delta that a writer could have
// logged there.
func DeltaDefects(prev *EpochHeader, delta []byte) []DeltaDefect {
	var out []DeltaDefect
	add := func(path, format string, args ...any) {
		out = append(out, DeltaDefect{path, fmt.Sprintf(format, args...)})
	}
	if jsjson.KindOf(delta) != jsjson.Object {
		add("data", "is %s, want an object", got(delta))
		return out
	}
	n := 0
	for key, v := range jsjson.Members(delta) {
		n++
		switch string(key) {
		case `"system"`:
			systemDefects(lines(prev.System), v, add)
		case `"tools"`:
			toolsDefects(prev.Tools, v, add)
		case `"config"`:
			if jsjson.KindOf(v) != jsjson.Object {
				add("config", "is %s, want an object", got(v))
			} else if ConfigEquals(prev.Config, v) {
				add("config", "changes no field")
			}
		case `"messagePrefix"`:
			if jsjson.KindOf(v) != jsjson.Array {
				add("messagePrefix", "is %s, want an array", got(v))
			} else if sameList(prev.MessagePrefix, v) {
				add("messagePrefix", "changes nothing")
			}
		default:
			add("data", "has a key no writer uses, %s", key)
		}
	}
	if n == 0 {
		add("data", "is empty")
	}
	return out
}

func systemDefects(old []string, d []byte, add func(string, string, ...any)) {
	if !objectOf(d, "system", []string{"keepStart", "keepEnd", "insert"}, add) {
		return
	}
	var keep [2]int64
	ok := true
	for i, key := range [...]string{"keepStart", "keepEnd"} {
		v := jsjson.Get(d, key)
		k, isInt := jsjson.SafeInt(v)
		switch {
		case v == nil:
			ok = false
		case !isInt || k < 0:
			ok = false
			add("system."+key, "is %s, want a whole number from 0", describe(v))
		case k > int64(len(old)):
			ok = false
			add("system."+key, "is %d, more than the %d lines before", k, len(old))
		}
		keep[i] = k
	}
	if ok && keep[0]+keep[1] > int64(len(old)) {
		add("system", "keeps %d and %d of %d lines, some of them twice", keep[0], keep[1], len(old))
	}
	insert := jsjson.Get(d, "insert")
	if insert == nil {
		return
	}
	if jsjson.KindOf(insert) != jsjson.Array {
		add("system.insert", "is %s, want an array of lines", got(insert))
		return
	}
	i := 0
	for v := range jsjson.Elements(insert) {
		if s, isStr := jsjson.Str(v); !isStr {
			add(fmt.Sprintf("system.insert[%d]", i), "is %s, want a line", got(v))
		} else if strings.Contains(s, "\n") {
			add(fmt.Sprintf("system.insert[%d]", i), "holds a line break")
		}
		i++
	}
}

// describe is got, with the value itself where it is short and harmless.
func describe(v []byte) string {
	if jsjson.KindOf(v) == jsjson.Number {
		return string(v)
	}
	return got(v)
}

func toolsDefects(prev, d []byte, add func(string, string, ...any)) {
	if !objectOf(d, "tools", []string{"added", "removed", "changed"}, add) {
		return
	}
	before := map[string][]byte{}
	for t := range jsjson.Elements(prev) {
		if k, ok := nameKey(t); ok {
			before[k] = t
		}
	}
	gone := map[string]bool{}
	for _, list := range [...]string{"removed", "added", "changed"} {
		v := jsjson.Get(d, list)
		if v == nil {
			continue
		}
		if jsjson.KindOf(v) != jsjson.Array {
			add("tools."+list, "is %s, want an array", got(v))
			continue
		}
		seen := map[string]bool{}
		i := 0
		for t := range jsjson.Elements(v) {
			path := fmt.Sprintf("tools.%s[%d]", list, i)
			i++
			name := t
			if list != "removed" {
				name = jsjson.Get(t, "name")
			}
			if jsjson.KindOf(name) != jsjson.String {
				add(path, "has no name")
				continue
			}
			k := string(name)
			old, known := before[k]
			switch {
			case seen[k] && list != "removed":
				add(path, "names %s a second time", k)
			case list == "added" && known:
				add(path, "adds %s, which is there", k)
			case list == "removed" && !known:
				add(path, "removes %s, which is not there", k)
			case list == "changed" && !known:
				add(path, "changes %s, which is not there", k)
			case list == "changed" && gone[k]:
				add(path, "changes %s, which is removed", k)
			case list == "changed" && bytes.Equal(old, t):
				add(path, "changes nothing in %s", k)
			}
			seen[k] = true
			if list == "removed" {
				gone[k] = true
			}
		}
	}
}

// objectOf reports members that are missing or unknown, and whether v is an
// object at all.
func objectOf(v []byte, path string, keys []string, add func(string, string, ...any)) bool {
	if jsjson.KindOf(v) != jsjson.Object {
		add(path, "is %s, want an object", got(v))
		return false
	}
	for _, k := range keys {
		if jsjson.Get(v, k) == nil {
			add(path+"."+k, "is absent")
		}
	}
	for key := range jsjson.Members(v) {
		known := false
		for _, k := range keys {
			known = known || string(key[1:len(key)-1]) == k
		}
		if !known {
			add(path, "has a key no writer uses, %s", key)
		}
	}
	return true
}
