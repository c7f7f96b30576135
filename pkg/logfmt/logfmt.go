// Package logfmt reads and writes session logs: containers and records, not
// what an event means. It implements PHYSICAL.
//
// A log is a header record followed by events, numbered by seq from 0. It may
// be kept as plain JSONL, as Zstandard JSONL, as rows of an SQLite database, or
// inside an export ZIP; whatever the container, a reader yields the same events.
//
// # Damage
//
// Damage is a result, not an exception: reading goes on after a defect, every
// defect is reported once with its place, and the log ends in one Class. The
// rules are those of the harness (PHYSICAL §2.5, §2.6): what stands before the
// first defect is kept; the log is torn, unless a record with turn/end lies at or
// behind that defect, which makes it corrupt. Events behind it are still read,
// and marked AfterDamage.
//
// After a gap the numbering is taken up where the log goes on, so that one gap is
// one defect. A line that does not decode may have held any number of events: a
// jump right behind it is no further defect.
//
// # Eras
//
// A header is judged by the rules of its own era: version 1 of June 2026 without
// delegationDepth is older than version 0, and read; version 1 with it is a later
// generation, and unsupported. What only the events can settle stands in
// Header.Fault.
//
// # What is not judged here
//
// What an event means, whether its type is known, and deviations of one event
// from the envelope (Event.Fault) or of a line from canonical JSON (Event.Facts):
// they are noted, and left to the rules above this package.
package logfmt

import "fmt"

// Container is the physical form of a log.
type Container string

const (
	Plain  Container = "jsonl"  // one record a line (PHYSICAL §2)
	Zstd   Container = "zstd"   // the same text in Zstandard frames (§3)
	SQLite Container = "sqlite" // rows of a database (§5)
	ZIP    Container = "zip"    // an export archive (§1.7)
	Golden Container = "golden" // a projected repository fixture (SEMANTICS §12)

	// Directory is no form of a log: it holds them.
	Directory Container = "directory"
)

// Position is the physical place of an event or a defect.
type Position struct {
	Line    int64 // physical line, from 1 (the header is line 1); 0 when the container has no lines
	Offset  int64 // byte offset of the record in the plain text (or, for SQLite, 0), from 0
	Length  int64 // bytes of the record including its line feed
	Frame   int   // Zstandard frame, from 0; -1 when not compressed
	FrameAt int64 // byte offset of that frame in the file; -1 when not compressed
	Row     int64 // seq column of the physical row in SQLite; -1 otherwise
	Member  int   // index of the event within a packed row, from 0; -1 when not packed
}

// EventLine is the line counted from 1 after the header, as the harness counts.
func (p Position) EventLine() int64 { return p.Line - 1 }

// Class is the physical soundness of a log. Classes are never mixed: a log is
// what its worst defect makes it (PHYSICAL §2.6, §3.5, §5.8).
type Class string

const (
	Intact      Class = "intact"
	Torn        Class = "torn"        // the tail is cut; the kept prefix is sound
	Corrupt     Class = "corrupt"     // damage inside the committed region, or no usable header
	Unsupported Class = "unsupported" // a format, generation or schema this build does not judge
	Unreadable  Class = "unreadable"  // I/O, permission, or not a log at all
)

// A Defect is one piece of physical damage, with its place.
type Defect struct {
	Rule    string   // stable id of the rule it breaks: LINE-JSON, LINE-ROW, LOG-SEQ, LOG-HEADER, …
	Class   Class    // what this defect alone makes of the log when it lies in the committed region; "" when it concerns its place, not its bytes
	File    string   // as given by the caller
	Pos     Position // of the record; Offset+At is the first wrong byte
	At      int64    // offset of the first wrong byte within the record; 0 if the whole record is meant
	Seq     int64    // seq of the event concerned, or the seq expected there; -1 if unknown
	Message string   // what is wrong and what was expected: lower case, no period, safe to print after escaping
	Hint    string   // what to do next; may be empty
	Err     error    // cause, may be nil
}

func (d *Defect) Error() string {
	s := d.File
	if d.Pos.Line > 0 {
		s += fmt.Sprintf(":%d", d.Pos.Line)
	}
	if d.Seq >= 0 {
		s += fmt.Sprintf(": seq %d", d.Seq)
	}
	if d.Pos.Row >= 0 && d.Pos.Line == 0 {
		return fmt.Sprintf("%s: row %d: %s", s, d.Pos.Row, d.Message)
	}
	if d.Pos.Line == 0 && d.Pos.Offset+d.At == 0 {
		return fmt.Sprintf("%s: %s", s, d.Message)
	}
	at := "byte"
	if d.Pos.Frame >= 0 {
		// The byte is one of the plain text; the frame is what the file holds.
		s += fmt.Sprintf(": frame %d", d.Pos.Frame)
		at = "text byte"
	}
	return fmt.Sprintf("%s: %s %d: %s", s, at, d.Pos.Offset+d.At, d.Message)
}

func (d *Defect) Unwrap() error { return d.Err }

// EnvelopeFault is a set of deviations of one event envelope from the closed
// shape of PHYSICAL §2.3. A line with faults is still an event as long as it is
// an object whose seq is the next index.
type EnvelopeFault uint16

const (
	FaultType       EnvelopeFault = 1 << iota // type is not a string
	FaultSeq                                  // seq is not a non-negative safe integer
	FaultTime                                 // time is not a safe integer
	FaultTimeNeg                              // time is negative (legal since 08-07)
	FaultNoData                               // data is absent
	FaultExtraKey                             // a key outside the closed set
	FaultIgnorable                            // ignorable present and not true
	FaultOp                                   // surfaceOp present and neither "append" nor an exact replace object
	FaultSources                              // sourceEventSeqs present and not an array of non-negative safe integers
	FaultSourceRuns                           // sourceEventSeqs holds [start,end] pairs (late v0)
)

// Event is one logical event. The slices are valid until the next iteration;
// Clone keeps one. All JSON is canonical (see internal/jsjson): a line that was
// not is canonicalised on reading, and Facts says so.
type Event struct {
	Type      string // "" when Fault has FaultType
	Seq       int64  // as logged; -1 when Fault has FaultSeq
	Time      int64  // ms since the epoch; 0 when Fault has FaultTime
	Data      []byte // canonical JSON; nil when absent
	Op        []byte // surfaceOp, canonical JSON; nil when absent
	Sources   []byte // sourceEventSeqs, canonical JSON; nil when absent
	Ignorable bool   // ignorable is exactly true
	JSON      []byte // the whole logical event as JSON.stringify writes it; for a packed member, synthesised
	Line      []byte // the stored bytes of the record without its line feed (for a packed member, of the row)
	Pos       Position
	Facts     uint16 // jsjson.Facts of the stored record
	Fault     EnvelopeFault
	Gen       uint8     // format generation of the log
	Synthetic Synthetic // what of it stands in no log
	// AfterDamage marks events read after the first defect: the harness drops
	// them (torn) or refuses the log (corrupt). They are judged, never trusted.
	AfterDamage bool

	Mark PieceMark // of an assistant/chunk in its usual form
	Runs KnownRuns // of Sources
}

// KnownRuns are the runs of an event's Sources, read once where the event is read.
// The zero value says nothing: SourceRuns then reads them.
type KnownRuns struct {
	list []SeqRange
	of   *byte // where the Sources begin that they are of
	size int   // and how long those are
}

// Equal is true of any two: they say nothing that Sources does not.
func (KnownRuns) Equal(KnownRuns) bool { return true }

// ReplaceOp is a decoded surfaceOp.
type ReplaceOp struct {
	Append     bool  // "append"
	Start, End int64 // of a replace, inclusive, by position on the surface
}
