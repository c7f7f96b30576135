package drift

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"sort"
	"strconv"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
)

// A HeaderGroup is one value that a part of the header has in one or more
// sessions.
type HeaderGroup struct {
	Name        string // M1, S1, T1, … in the order of their first use
	Digest      string // SHA-256 of the value, hex
	Value       []byte // the config, the system prompt or the tools, canonical JSON; nil when absent
	Sessions    int
	Headers     int   // header events that carry it
	First, Last int64 // times of the first and the last of them
	// How it differs from the group before it; nil for the first one.
	Config []Change
	System *SystemDiff
	Tools  *ToolsDiff
}

// A HeaderUse is one header event of a session, by the groups of its parts.
type HeaderUse struct {
	EventRef
	Reason               string
	Model, System, Tools int // indexes of groups
}

// A HeaderSession is one session and the headers it used.
type HeaderSession struct {
	Path      string
	SessionID string
	CreatedAt int64
	Uses      []HeaderUse // consecutive equal ones only once
}

// A HeaderSurvey is how headers vary over many sessions.
type HeaderSurvey struct {
	Models, Systems, Tools []*HeaderGroup
	Sessions               []*HeaderSession // by time of creation, then id, then path
	Without                int              // sessions in which no header was logged

	pending []surveyed
}

type surveyed struct {
	session *HeaderSession
	notes   []HeaderNote
}

// Add takes up the history of one log. Inherited headers are the parent's and
// left out.
func (v *HeaderSurvey) Add(path string, h *History) {
	s := surveyed{session: &HeaderSession{Path: path, SessionID: h.SessionID, CreatedAt: h.CreatedAt}}
	for _, n := range h.headers {
		if n.Seq >= h.Seed {
			s.notes = append(s.notes, n)
		}
	}
	v.pending = append(v.pending, s)
}

// End forms the groups.
func (v *HeaderSurvey) End() {
	slices.SortStableFunc(v.pending, func(a, b surveyed) int {
		x, y := a.session, b.session
		return cmp.Or(cmp.Compare(x.CreatedAt, y.CreatedAt), cmp.Compare(x.SessionID, y.SessionID), cmp.Compare(x.Path, y.Path))
	})
	index := make(map[string]int)
	use := func(list *[]*HeaderGroup, letter string, value []byte, n *HeaderNote, seen map[*HeaderGroup]bool) int {
		sum := sha256.Sum256(value)
		key := letter + string(sum[:]) + strconv.FormatBool(value == nil)
		i, ok := index[key]
		if !ok {
			i = len(*list)
			index[key] = i
			*list = append(*list, &HeaderGroup{Name: letter + strconv.Itoa(i+1), Digest: hex.EncodeToString(sum[:]), Value: value, First: n.Time, Last: n.Time})
		}
		g := (*list)[i]
		g.Headers++
		g.First, g.Last = min(g.First, n.Time), max(g.Last, n.Time)
		if !seen[g] {
			seen[g] = true
			g.Sessions++
		}
		return i
	}
	for _, p := range v.pending {
		seen := make(map[*HeaderGroup]bool)
		for i := range p.notes {
			n := &p.notes[i]
			u := HeaderUse{EventRef: n.EventRef, Reason: n.Reason,
				Model:  use(&v.Models, "M", configValue(n.Header), n, seen),
				System: use(&v.Systems, "S", n.Header.System, n, seen),
				Tools:  use(&v.Tools, "T", n.Header.Tools, n, seen),
			}
			if k := len(p.session.Uses); k > 0 {
				if l := p.session.Uses[k-1]; l.Model == u.Model && l.System == u.System && l.Tools == u.Tools {
					continue
				}
			}
			p.session.Uses = append(p.session.Uses, u)
		}
		if len(p.notes) == 0 {
			v.Without++
		}
		v.Sessions = append(v.Sessions, p.session)
	}
	v.pending = nil
	for i := 1; i < len(v.Models); i++ {
		a, b := members(v.Models[i-1].Value), members(v.Models[i].Value)
		v.Models[i].Config, _ = compareConfig(a, b)
	}
	for i := 1; i < len(v.Systems); i++ {
		v.Systems[i].System = compareSystem(v.Systems[i-1].Value, v.Systems[i].Value)
	}
	for i := 1; i < len(v.Tools); i++ {
		d := compareTools(toolsBody(v.Tools[i-1].Value), toolsBody(v.Tools[i].Value))
		v.Tools[i].Tools = &d
	}
}

// configValue is the config with its members in the order of their names, so
// that their order makes no group of its own.
func configValue(h *fold.EpochHeader) []byte {
	if jsjson.KindOf(h.Config) != jsjson.Object {
		return h.Config
	}
	type member struct{ key, value []byte }
	var list []member
	for k, v := range jsjson.Members(h.Config) {
		list = append(list, member{k, v})
	}
	sort.SliceStable(list, func(i, j int) bool {
		a, b := rank(list[i].key), rank(list[j].key)
		if a != b {
			return a < b
		}
		return string(list[i].key) < string(list[j].key)
	})
	out := []byte{'{'}
	for i, m := range list {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, m.key...), ':'), m.value...)
	}
	return append(out, '}')
}

// rank puts the route first.
func rank(key []byte) int {
	switch string(key) {
	case `"provider"`:
		return 0
	case `"model"`:
		return 1
	}
	return 2
}

func members(config []byte) (out []Member) {
	for k, v := range jsjson.Members(config) {
		name, _ := jsjson.Str(k)
		out = append(out, Member{name, v})
	}
	return out
}

func toolsBody(tools []byte) *Body {
	return &Body{Tools: slices.Collect(jsjson.Elements(tools)), HasTools: tools != nil}
}
