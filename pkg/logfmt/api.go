package logfmt

// Header is the header record of a log (PHYSICAL §2.2). Raw keeps its canonical
// bytes; absent members are nil pointers.
type Header struct {
	Raw             []byte // canonical JSON of the stored record
	Version         int64
	ID              string // WTF-8
	CreatedAt       int64
	Cwd             *string
	ParentSession   *string
	SeedLength      *int64
	Origin          *string
	DelegationDepth *int64
	AgentPreset     *string
	Pos             Position
	Facts           uint16
}

// Seed is the number of leading events inherited from a parent log.
func (h *Header) Seed() int64 {
	if h == nil || h.SeedLength == nil {
		return 0
	}
	return *h.SeedLength
}
