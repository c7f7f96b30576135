package fold

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

func newTestStore(era Era) *Store {
	s := NewStoreOf(era)
	now := int64(1000)
	s.SetClock(func() int64 { now++; return now })
	return s
}

func ids(list []*Session) (out []string) {
	for _, s := range list {
		out = append(out, s.ID())
	}
	return out
}

func TestStore(t *testing.T) {
	s := newTestStore(Newest)
	a, err := s.Create(CreateOptions{Meta: SessionMeta{ID: "a", Cwd: "/w"}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(a.Header().Raw), `{"type":"session","version":0,"id":"a","createdAt":1001,"cwd":"/w","delegationDepth":0}`; got != want {
		t.Errorf("header %s, want %s", got, want)
	}
	b, err := s.Create(CreateOptions{Meta: SessionMeta{CreatedAt: 7}})
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(b.ID()) || b.Header().CreatedAt != 7 {
		t.Errorf("id %s, created at %d", b.ID(), b.Header().CreatedAt)
	}
	if _, err := s.Create(CreateOptions{Meta: SessionMeta{ID: "a"}}); !errors.Is(err, ErrSessionExists) || err.Error() != `session "a": a session with this id exists` {
		t.Errorf("error %v", err)
	}
	var se *SessionError
	if _, err := s.Create(CreateOptions{Meta: SessionMeta{ID: "c", Cwd: "w"}}); !errors.As(err, &se) || se.Rule != SessionHeader {
		t.Errorf("error %v", err)
	}
	if _, err := s.Create(CreateOptions{Meta: SessionMeta{ID: "c"}, Seed: []*logfmt.Event{{Type: "x", Seq: 1, Data: []byte(`{}`)}}}); !errors.As(err, &se) || se.Rule != SessionSeq || err.Error() != `seq 0: "x": has seq 1, want 0` {
		t.Errorf("error %v", err)
	}
	if got, ok := s.Get("a"); !ok || got != a {
		t.Errorf("Get(a) = %v, %v", got, ok)
	}
	if got, ok := s.Get("c"); ok || got != nil {
		t.Errorf("Get(c) = %v, %v", got, ok)
	}
	list := s.List()
	if diff := cmp.Diff([]string{"a", b.ID()}, ids(list)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	list[0] = nil
	if got := ids(s.List()); got[0] != "a" {
		t.Errorf("the list can be changed: %v", got)
	}
	if e := mustAppend(t, a, "turn/start", `{"turn":1}`, AppendOptions{}); e.Time != 1004 {
		t.Errorf("time %d, want that of the store's clock", e.Time)
	}
	if zero, err := NewStore().Create(CreateOptions{}); err != nil || zero.Era() != E13 || zero.Header().CreatedAt < 1_700_000_000_000 {
		t.Errorf("%v, %v", zero, err)
	}
}

// A seed is marked off from E9 on, once.
func TestStoreSeed(t *testing.T) {
	start := &logfmt.Event{Type: "turn/start", Seq: 0, Time: 5, Data: []byte(`{"turn":1}`)}
	marker := &logfmt.Event{Type: "session/end-seed", Seq: 1, Time: 6, Data: []byte(`{}`)}
	for _, tc := range []struct {
		era  Era
		seed []*logfmt.Event
		want []string
	}{
		{E13, nil, nil},
		{E13, []*logfmt.Event{}, []string{`{"type":"session/end-seed","seq":0,"time":1002,"data":{}}`}},
		{E9, []*logfmt.Event{}, []string{`{"type":"session/end-seed","seq":0,"time":1002,"data":{}}`}},
		{E8, []*logfmt.Event{}, nil},
		{E13, []*logfmt.Event{start}, []string{`{"type":"turn/start","seq":0,"time":5,"data":{"turn":1}}`, `{"type":"session/end-seed","seq":1,"time":1002,"data":{}}`}},
		{E13, []*logfmt.Event{start, marker}, []string{`{"type":"turn/start","seq":0,"time":5,"data":{"turn":1}}`, `{"type":"session/end-seed","seq":1,"time":6,"data":{}}`}},
		{E8, []*logfmt.Event{start}, []string{`{"type":"turn/start","seq":0,"time":5,"data":{"turn":1}}`}},
	} {
		s, err := newTestStore(tc.era).Create(CreateOptions{Seed: tc.seed})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, jsonLines(slices.Collect(s.Events()))); diff != "" {
			t.Errorf("era %d: (-want +got)\n%s", tc.era, diff)
		}
	}
}

func TestFork(t *testing.T) {
	types := []string{"todo/write", "turn/start", "todo/write", "turn/end", "todo/write", "turn/start", "todo/write"}
	for _, tc := range []struct {
		name string
		era  Era
		n    int64
		meta SessionMeta
		len  int64 // of the seed
		want string
	}{
		{name: "nothing", era: E13, n: 0, len: 0},
		{name: "before a turn", era: E13, n: 1, len: 1},
		{name: "in a turn", era: E13, n: 2, want: `session "p": 2 of 7 events: the log cannot be forked there`},
		{name: "at the end of a turn", era: E13, n: 4, len: 4},
		{name: "between turns", era: E13, n: 5, len: 5},
		{name: "in the last turn", era: E13, n: 7, want: `session "p": 7 of 7 events: the log cannot be forked there`},
		{name: "latest", era: E13, n: Latest, len: 5},
		{name: "beyond", era: E13, n: 8, want: `session "p": 8 of 7 events: the boundary lies beyond the log`},
		{name: "negative", era: E13, n: -2, want: `session "p": -2 of 7 events: the boundary lies beyond the log`},
		{name: "between turns, before E9", era: E8, n: 5, want: `session "p": 5 of 7 events: the log cannot be forked there`},
		{name: "before a turn, before E9", era: E8, n: 1, want: `session "p": 1 of 7 events: the log cannot be forked there`},
		{name: "at the end of a turn, before E9", era: E8, n: 4, len: 4},
		{name: "nothing, before E9", era: E8, n: 0, len: 0},
		{name: "latest, before E9", era: E8, n: Latest, len: 4},
		{name: "the parent's own id", era: E13, n: 4, meta: SessionMeta{ID: "p"}, want: `session "p": a session with this id exists`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newTestStore(tc.era)
			p, err := s.Create(CreateOptions{Meta: SessionMeta{ID: "p", Cwd: "/w"}})
			if err != nil {
				t.Fatal(err)
			}
			for _, typ := range types {
				mustAppend(t, p, typ, `{"turn":1}`, AppendOptions{})
			}
			if tc.meta.ID == "" {
				tc.meta.ID = "c"
			}
			c, err := s.Fork("p", tc.n, tc.meta)
			if tc.want != "" {
				if err == nil || err.Error() != tc.want {
					t.Errorf("error %v, want %s", err, tc.want)
				}
				if len(s.List()) != 1 {
					t.Errorf("%d sessions", len(s.List()))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			h := c.Header()
			if h.Seed() != tc.len || *h.ParentSession != "p" || *h.Cwd != "/w" || (h.SeedLength == nil) != (tc.len == 0) {
				t.Errorf("header %s", h.Raw)
			}
			parent, child := jsonLines(slices.Collect(p.Events())), jsonLines(slices.Collect(c.Events()))
			if diff := cmp.Diff(parent[:tc.len], child[:tc.len]); diff != "" && tc.len > 0 {
				t.Errorf("(-parent +child)\n%s", diff)
			}
			rest := int64(0)
			if tc.era >= E9 {
				if got := child[tc.len]; got != fmt.Sprintf(`{"type":"session/end-seed","seq":%d,"time":%d,"data":{}}`, tc.len, 1010) {
					t.Errorf("behind the seed stands %s", got)
				}
				rest = 1
			}
			if c.Seq() != tc.len+rest {
				t.Errorf("%d events", c.Seq())
			}
			// The two go their own ways.
			mustAppend(t, c, "todo/write", `{}`, AppendOptions{})
			if p.Seq() != int64(len(types)) {
				t.Errorf("the parent has %d events", p.Seq())
			}
		})
	}
	// A parent without events.
	s := newTestStore(E13)
	if _, err := s.Create(CreateOptions{Meta: SessionMeta{ID: "p"}}); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int64{0, Latest} {
		c, err := s.Fork("p", n, SessionMeta{CreatedAt: 1})
		if err != nil {
			t.Fatal(err)
		}
		if got := jsonLines(slices.Collect(c.Events())); len(got) != 1 || !regexp.MustCompile(`^{"type":"session/end-seed","seq":0,"time":100[2-4],"data":{}}$`).MatchString(got[0]) {
			t.Errorf("%d: events %q", n, got)
		}
	}
	if _, err := NewStore().Fork("x", 0, SessionMeta{}); !errors.Is(err, ErrNoSession) {
		t.Errorf("error %v", err)
	}
}

func ExampleSession() {
	s, err := NewSession(SessionMeta{ID: "example", Cwd: "/work"})
	if err != nil {
		panic(err)
	}
	s.SetClock(func() int64 { return 0 })
	s.Append("turn/start", map[string]any{"turn": 1}, AppendOptions{})
	s.Append("step/start", map[string]any{"turn": 1, "step": 1}, AppendOptions{})
	_, err = s.Append("user/message", json.RawMessage(`{"content":[{"type":"text","text":"q"}],"source":{"kind":"user"}}`), OnSurface())
	fmt.Println(err)
	s.Append("user/message", json.RawMessage(aMessage), OnSurface())
	for e := range s.Events() {
		fmt.Println(string(e.JSON))
	}
	m, _ := s.DeriveMessages()
	fmt.Println(m[0])
	// Output:
	// seq 2: "user/message": data.id is absent, want text
	// {"type":"turn/start","seq":0,"time":0,"data":{"turn":1}}
	// {"type":"step/start","seq":1,"time":0,"data":{"step":1,"turn":1}}
	// {"type":"user/message","seq":2,"time":0,"data":{"content":[{"type":"text","text":"q"}],"source":{"kind":"user"},"role":"user","id":"u1"},"surfaceOp":"append"}
	// {"content":[{"type":"text","text":"q"}],"source":{"kind":"user"},"role":"user","id":"u1"}
}
