package logfmt

// Header is the header record of a log (PHYSICAL §2.2). Raw keeps its canonical
// bytes; absent members are nil pointers.
type Header struct {
	Raw             []byte // canonical JSON of the stored record
	Version         int64
	Generation      int64  // Version, but 0 for version 1 of June 2026; see GenerationOf
	ID              string // WTF-8
	CreatedAt       int64
	Cwd             *string
	ParentSession   *string
	SeedLength      *int64
	Origin          *string
	DelegationDepth *int64
	AgentPreset     *string
	Seeded          *bool    // isSeeded, from generation 2
	Cut             *int64   // from generation 2: the seq where a seeded log's own events begin; nil when unknown, as for a stream
	Unknown         []string // keys outside the known set, tolerated by every build
	Pos             Position
	Facts           uint16 // jsjson.Facts of the stored record
	Fault           HeaderFault
}

// HeaderFault is a set of things that a header alone does not settle: some were
// legal in some era, some are refused only when a session is built from the log.
type HeaderFault uint16

const (
	HeaderJune        HeaderFault = 1 << iota // version 1 of 06-17 to 06-21, older than version 0; no later build appends to such a log
	HeaderNoDepth                             // delegationDepth is absent: legal before 07-20 19:53
	HeaderCreatedAt                           // createdAt is a number, but no non-negative safe integer: legal before 07-24 21:14
	HeaderCwd                                 // cwd is not a string
	HeaderCwdRelative                         // cwd is absolute neither on POSIX nor on Windows
	HeaderParent                              // parentSession is not a string
	HeaderSeed                                // seedLength is not a non-negative safe integer
	HeaderUnknownKey                          // a key outside the known set, see Unknown
	HeaderRetired                             // sandboxMode or approvalPolicy of a development build
	HeaderSeeded                              // isSeeded is not a boolean
	HeaderNoVersion                           // version is absent: legal in a fixture only
)

// Seed is the number of leading events inherited from a parent log, as far as the
// header record or a look ahead told; see CutUnknown.
func (h *Header) Seed() int64 {
	switch {
	case h == nil:
	case h.Cut != nil:
		return *h.Cut
	case h.SeedLength != nil && h.Seeded == nil:
		return *h.SeedLength
	}
	return 0
}

// CutUnknown reports whether the log has inherited events and only reading it
// tells how many.
func (h *Header) CutUnknown() bool { return h != nil && h.Seeded != nil && *h.Seeded && h.Cut == nil }
