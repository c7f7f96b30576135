package fold

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Errors of a Store.
var (
	ErrSessionExists = errors.New("a session with this id exists")
	ErrNoSession     = errors.New("no session with this id")
	ErrNotABoundary  = errors.New("the log cannot be forked there")
	ErrBeyondTheLog  = errors.New("the boundary lies beyond the log")
)

// A Store holds sessions in memory, in the order of their creation (SEMANTICS
// §10.2). The zero value is not ready; use NewStore or NewStoreOf. It must not be used from
// several goroutines at once.
type Store struct {
	era      Era
	clock    func() int64
	sessions []*Session
}

// NewStore makes a store whose sessions follow the newest dialect.
func NewStore() *Store { return NewStoreOf(Newest) }

// NewStoreOf makes a store whose sessions follow the given era.
func NewStoreOf(era Era) *Store {
	return &Store{era: era, clock: func() int64 { return time.Now().UnixMilli() }}
}

// SetClock sets where the times of the store and of its later sessions come
// from, in ms since the epoch.
func (s *Store) SetClock(now func() int64) { s.clock = now }

// CreateOptions describe a new session.
type CreateOptions struct {
	Seed []*logfmt.Event // events it starts with, copied; see NewSessionOf. Empty is not nil: nothing was taken over
	Meta SessionMeta     // ID "" asks for a random one, CreatedAt 0 for the store's clock
}

// Create makes a session. From E9 on a seed is marked off by session/end-seed,
// unless it ends with one; so is an empty seed, but not none (PHYSICAL §7.7,
// SEMANTICS §10.3). It fails with ErrSessionExists or a *SessionError.
func (s *Store) Create(o CreateOptions) (*Session, error) {
	m := o.Meta
	if m.ID == "" {
		m.ID = randomID()
	}
	if _, ok := s.Get(m.ID); ok {
		return nil, fmt.Errorf("session %q: %w", m.ID, ErrSessionExists)
	}
	if m.CreatedAt == 0 {
		m.CreatedAt = s.clock()
	}
	c, err := NewSessionOf(s.era, m, o.Seed...)
	if err != nil {
		return nil, err
	}
	c.SetClock(s.clock)
	if n := len(c.events); o.Seed != nil && s.era >= E9 && (n == 0 || c.events[n-1].Type != logfmt.TypeSessionEndSeed) {
		if _, err := c.Append(logfmt.TypeSessionEndSeed, map[string]any{}, AppendOptions{}); err != nil {
			return nil, err
		}
	}
	s.sessions = append(s.sessions, c)
	return c, nil
}

// Get finds a session by its id.
func (s *Store) Get(id string) (*Session, bool) {
	for _, c := range s.sessions {
		if c.meta.ID == id {
			return c, true
		}
	}
	return nil, false
}

// List returns the sessions in the order of their creation, in a new slice.
func (s *Store) List() []*Session { return slices.Clone(s.sessions) }

// Latest asks Fork for the last place at which a log may be forked.
const Latest = -1

// Fork makes a session that starts with the first n events of another (SEMANTICS
// §10.2). Up to E8 the last of them must be a turn/end; from E9 on n may be any
// place outside an open turn; 0 always may. Latest picks the last such place. The
// copies keep seq, time and every id. The child names its parent and the length
// of the seed, and takes over cwd and depth unless meta says otherwise.
//
// It fails with ErrNoSession, ErrSessionExists, ErrBeyondTheLog, ErrNotABoundary
// or a *SessionError.
func (s *Store) Fork(parent string, n int64, meta SessionMeta) (*Session, error) {
	p, ok := s.Get(parent)
	if !ok {
		return nil, fmt.Errorf("session %q: %w", parent, ErrNoSession)
	}
	latest, at := p.boundaries(n)
	switch {
	case n == Latest:
		n = latest
	case n < 0 || n > p.Seq():
		return nil, fmt.Errorf("session %q: %d of %d events: %w", parent, n, p.Seq(), ErrBeyondTheLog)
	case !at:
		return nil, fmt.Errorf("session %q: %d of %d events: %w", parent, n, p.Seq(), ErrNotABoundary)
	}
	meta.ParentSession, meta.SeedLength = p.meta.ID, n
	if meta.Cwd == "" {
		meta.Cwd = p.meta.Cwd
	}
	if meta.DelegationDepth == 0 {
		meta.DelegationDepth = p.meta.DelegationDepth
	}
	seed := p.events[:n]
	if seed == nil {
		seed = []*logfmt.Event{} // forked all the same
	}
	return s.Create(CreateOptions{Seed: seed, Meta: meta})
}

// boundaries returns the last place at which the log may be forked, and whether
// n is one.
func (s *Session) boundaries(n int64) (latest int64, at bool) {
	at = n == 0
	open := false
	for i, e := range s.events {
		switch e.Type {
		case logfmt.TypeTurnStart:
			open = true
		case logfmt.TypeTurnEnd:
			open = false
		}
		if s.era >= E9 && !open || s.era < E9 && e.Type == logfmt.TypeTurnEnd {
			latest = int64(i) + 1
			at = at || latest == n
		}
	}
	return latest, at
}

// randomID is a UUID of version 4.
func randomID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
