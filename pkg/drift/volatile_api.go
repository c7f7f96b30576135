package drift

import "strings"

// Volatile finds the values of a recording that differ from one recording to
// the next: ids, the working directory, times. Ids have to be learned first.
type Volatile struct{ v *volatiles }

// VolatileKind says what a volatile value is.
type VolatileKind byte

// Kinds of volatile values.
const (
	VolatileID   = VolatileKind(volatileID)
	VolatileCwd  = VolatileKind(volatileCwd)
	VolatileTime = VolatileKind(volatileTime)
)

// NewVolatile returns one for a recording with that working directory, "" for
// none, and with events between two times, in ms since the epoch. Where first is
// above last nothing is a time.
func NewVolatile(cwd string, first, last int64) *Volatile {
	v := newVolatiles(&History{Cwd: cwd, CreatedAt: first, first: first, last: last})
	if first > last {
		v.first, v.last = 1, 0
	}
	return &Volatile{v}
}

// LearnID makes an id known, so that it is found in texts.
func (v *Volatile) LearnID(id string) {
	if len(id) >= 6 && !strings.HasPrefix(id, "{{") {
		v.v.ids[id] = true
	}
}

// Text returns a text with every volatile part exchanged for what visit returns.
func (v *Volatile) Text(s string, visit func(VolatileKind, string) string) string {
	return v.v.text(s, func(k volatileKind, s string) string { return visit(VolatileKind(k), s) })
}

// Time reports whether a number of milliseconds under a key, a JSON token, is a
// time of the recording.
func (v *Volatile) Time(key []byte, ms int64) bool { return timeKey(key) && v.v.recent(ms) }

// IDKey reports whether a string under a key, a JSON token, is an id.
func IDKey(key []byte) bool { return idKey(key) }
