package fold

import (
	"errors"
	"iter"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// vectors reads a file of recorded inputs and results of the harness's own
// functions, one object a case.
func vectors(t *testing.T, path string) [][]byte {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text, _, err := jsjson.Stringify(raw)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	var out [][]byte
	for v := range jsjson.Elements(text) {
		out = append(out, v)
	}
	return out
}

func july(name string) string { return filepath.Join("testdata", "july", name+".json") }

func str(t *testing.T, v []byte, key string) string {
	t.Helper()
	s, ok := jsjson.Str(jsjson.Get(v, key))
	if !ok {
		t.Fatalf("vector without %s: %s", key, v)
	}
	return s
}

// event makes an event of its JSON text, as a reader does.
func event(raw []byte) *logfmt.Event {
	e := &logfmt.Event{Seq: -1, JSON: raw, Line: raw}
	e.Type, _ = jsjson.Str(jsjson.Get(raw, "type"))
	if n, ok := jsjson.SafeInt(jsjson.Get(raw, "seq")); ok {
		e.Seq = n
	}
	e.Time, _ = jsjson.SafeInt(jsjson.Get(raw, "time"))
	e.Data = jsjson.Get(raw, "data")
	e.Op = jsjson.Get(raw, "surfaceOp")
	e.Sources = jsjson.Get(raw, "sourceEventSeqs")
	return e
}

func eventSeq(list []byte) iter.Seq[*logfmt.Event] {
	return func(yield func(*logfmt.Event) bool) {
		for raw := range jsjson.Elements(list) {
			if !yield(event(raw)) {
				return
			}
		}
	}
}

func present(v []byte) bool {
	k := jsjson.KindOf(v)
	return k != jsjson.Absent && k != jsjson.Null
}

func TestVectorsDerive(t *testing.T) {
	want := map[string]int{"a": 53, "b": 53, "b2": 53, "c": 53}
	projections := map[string]Projection{"a": Framed(), "b": Framed(), "b2": Framed(), "c": Verbatim()}
	for era, p := range projections {
		n := 0
		for _, v := range vectors(t, july(era+"-derive-event")) {
			n++
			e := event(jsjson.Get(v, "event"))
			msg, err := DeriveEventMessage(e, p)
			if jsjson.Get(v, "error") != nil {
				var se *ShapeError
				if !errors.As(err, &se) || se.Path != "data.source" || se.Got != "absent" {
					t.Errorf("%s %s: error %v, want data.source absent", era, str(t, v, "name"), err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s %s: %v", era, str(t, v, "name"), err)
				continue
			}
			got := string(msg)
			if msg == nil {
				got = "null"
			}
			if diff := cmp.Diff(str(t, v, "bytes"), got); diff != "" {
				t.Errorf("%s %s: (-want +got)\n%s", era, str(t, v, "name"), diff)
			}
			if msg != nil && !jsjson.Canonical(msg) {
				t.Errorf("%s %s: result is not canonical: %s", era, str(t, v, "name"), msg)
			}
		}
		if n != want[era] {
			t.Errorf("era %s: %d vectors, want %d", era, n, want[era])
		}
	}
}

func TestVectorsCanonicalHeader(t *testing.T) {
	for era, want := range map[string]int{"b": 9, "b2": 9, "c": 9} {
		n := 0
		for _, v := range vectors(t, july(era+"-canonical-header")) {
			n++
			h, err := CanonicalHeader(jsjson.Get(v, "header"))
			if err != nil {
				t.Errorf("%s %s: %v", era, str(t, v, "name"), err)
				continue
			}
			if diff := cmp.Diff(string(jsjson.Get(v, "canonical")), string(h.JSON())); diff != "" {
				t.Errorf("%s %s: (-want +got)\n%s", era, str(t, v, "name"), diff)
			}
		}
		if n != want {
			t.Errorf("era %s: %d vectors, want %d", era, n, want)
		}
	}
}

// verbatimHeader reads a header without making it canonical, as a caller of the
// pure functions may pass it.
func verbatimHeader(raw []byte) *EpochHeader {
	if !present(raw) {
		return nil
	}
	return &EpochHeader{
		Config:          jsjson.Get(raw, "config"),
		AdapterDefaults: jsjson.Get(raw, "adapterDefaults"),
		System:          jsjson.Get(raw, "system"),
		Tools:           jsjson.Get(raw, "tools"),
		MessagePrefix:   jsjson.Get(raw, "messagePrefix"),
	}
}

func TestVectorsHeaderDelta(t *testing.T) {
	for era, want := range map[string]int{"b": 107, "b2": 113} {
		n := 0
		for _, v := range vectors(t, july(era+"-header-delta")) {
			n++
			name := era + " " + str(t, v, "name")
			prev, next := verbatimHeader(jsjson.Get(v, "prev")), verbatimHeader(jsjson.Get(v, "next"))
			equal := HeaderEquals(prev, next)
			if want := string(jsjson.Get(v, "headerEquals")) == "true"; equal != want {
				t.Errorf("%s: HeaderEquals = %v, want %v", name, equal, want)
			}
			ev := NextHeaderEvent(E4, prev, next, false)
			would := ev.Type
			if would == "" {
				would = "nothing"
			}
			if ev.Reason != "" {
				would += " " + ev.Reason
			}
			if diff := cmp.Diff(str(t, v, "writerWouldLog"), would); diff != "" {
				t.Errorf("%s: writer (-want +got)\n%s", name, diff)
			}
			want := jsjson.Get(v, "delta")
			if !present(want) {
				if got := string(DiffHeader(prev, next)); got != "{}" {
					t.Errorf("%s: DiffHeader = %s, want {}", name, got)
				}
				continue
			}
			delta := DiffHeader(prev, next)
			if diff := cmp.Diff(string(want), string(delta)); diff != "" {
				t.Errorf("%s: delta (-want +got)\n%s", name, diff)
			}
			applied, err := ApplyHeaderDelta(prev, delta)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if diff := cmp.Diff(string(jsjson.Get(v, "applied")), string(applied.JSON())); diff != "" {
				t.Errorf("%s: applied (-want +got)\n%s", name, diff)
			}
			trips := string(jsjson.Get(v, "roundTrips")) == "true"
			if got := HeaderEquals(applied, next); got != trips {
				t.Errorf("%s: round trip %v, want %v", name, got, trips)
			}
			if trips {
				if d := DeltaDefects(prev, delta); d != nil {
					t.Errorf("%s: a delta that a writer logs has defects %v", name, d)
				}
			}
		}
		if n != want {
			t.Errorf("era %s: %d vectors, want %d", era, n, want)
		}
	}
}

func TestVectorsApplyMalformed(t *testing.T) {
	// What an auditor says of each; the result is the vector's.
	defects := map[string][]string{
		"empty delta":                       {"data: is empty"},
		"keepStart past end":                {"system.keepStart: is 9, more than the 3 lines before"},
		"keepEnd past end":                  {"system.keepEnd: is 9, more than the 3 lines before"},
		"overlapping keeps duplicate lines": {"system: keeps 2 and 2 of 3 lines, some of them twice"},
		"insert line with newline":          {"system.insert[0]: holds a line break"},
		"negative keepStart":                {"system.keepStart: is -1, want a whole number from 0"},
		"negative keepEnd":                  {"system.keepEnd: is -1, want a whole number from 0"},
		"fractional keeps":                  {"system.keepStart: is 1.9, want a whole number from 0", "system.keepEnd: is 0.5, want a whole number from 0"},
		"keep as strings":                   {"system.keepStart: is a string, want a whole number from 0", "system.keepEnd: is a string, want a whole number from 0"},
		"missing keepEnd":                   {"system.keepEnd: is absent"},
		"missing insert":                    {"system.insert: is absent"},
		"system null":                       {"system: is null, want an object"},
		"insert string":                     {"system.insert: is a string, want an array of lines"},
		"removed unknown":                   {`tools.removed[0]: removes "nope", which is not there`},
		"changed unknown is ignored":        {`tools.changed[0]: changes "dinghy", which is not there`},
		"added existing duplicates":         {`tools.added[0]: adds "anchor", which is there`},
		"removed and changed same":          {`tools.changed[0]: changes "buoy", which is removed`},
		"removed and added same":            {`tools.added[0]: adds "buoy", which is there`},
		"tools null":                        {"tools: is null, want an object"},
		"tools missing lists":               {"tools.removed: is absent", "tools.changed: is absent"},
		"config null keeps previous":        {"config: is null, want an object"},
		"unknown extra field":               {`data: has a key no writer uses, "bogus"`},
		"changed twice last wins":           {`tools.changed[1]: names "buoy" a second time`},
		"keeps on absent system":            {"system.keepStart: is 2, more than the 0 lines before", "system.keepEnd: is 2, more than the 0 lines before"},
		"tools on absent":                   {`tools.removed[0]: removes "x", which is not there`, `tools.changed[0]: changes "buoy", which is not there`},
		"prefix null keeps":                 {"messagePrefix: is null, want an array"},
	}
	refusals := map[string]struct {
		path string
		kind Refusal
	}{
		"missing insert":      {"system.insert", RefusalNotIterable},
		"system null":         {"system", RefusalNull},
		"tools null":          {"tools", RefusalNull},
		"tools missing lists": {"tools.changed", RefusalNull},
	}
	for era, want := range map[string]int{"b": 33, "b2": 35} {
		n, refused := 0, 0
		for _, v := range vectors(t, july(era+"-apply-malformed")) {
			n++
			name := str(t, v, "name")
			prev := verbatimHeader(jsjson.Get(v, "prev"))
			delta := jsjson.Get(v, "delta")
			h, err := ApplyHeaderDelta(prev, delta)
			if jsjson.Get(v, "error") != nil {
				refused++
				var he *HeaderError
				if w := refusals[name]; !errors.As(err, &he) || he.Path != w.path || he.Refusal != w.kind {
					t.Errorf("%s %s: error %v, want %v", era, name, err, w)
				}
			} else if err != nil {
				t.Errorf("%s %s: %v", era, name, err)
			} else if diff := cmp.Diff(string(jsjson.Get(v, "result")), string(h.JSON())); diff != "" {
				t.Errorf("%s %s: (-want +got)\n%s", era, name, diff)
			}
			var got []string
			for _, d := range DeltaDefects(prev, delta) {
				got = append(got, d.String())
			}
			if diff := cmp.Diff(defects[name], got); diff != "" {
				t.Errorf("%s %s: defects (-want +got)\n%s", era, name, diff)
			}
		}
		if n != want || refused != 4 {
			t.Errorf("era %s: %d vectors with %d refusals, want %d with 4", era, n, refused, want)
		}
	}
}

func TestVectorsFoldHeader(t *testing.T) {
	refusals := map[string]struct {
		seq  int64
		path string
		kind Refusal
	}{
		"delta before snapshot":              {1, "data", RefusalNoSnapshot},
		"delta before snapshot later healed": {0, "data", RefusalNoSnapshot},
		"snapshot without header":            {0, "data.header", RefusalNull},
		"snapshot header null system":        {0, "data.header.system", RefusalNull},
	}
	for era, want := range map[string]int{"b": 19, "b2": 19, "c": 19} {
		n := 0
		for _, v := range vectors(t, july(era+"-fold-header")) {
			n++
			name := str(t, v, "name")
			var h *EpochHeader
			var err error
			if era == "c" {
				f := HeaderFold{Header: verbatimHeader(jsjson.Get(v, "from")), IgnoreDeltas: true}
				for e := range eventSeq(jsjson.Get(v, "events")) {
					if _, err = f.Add(e); err != nil {
						break
					}
				}
				h = f.Header
			} else {
				h, err = FoldRequestHeader(eventSeq(jsjson.Get(v, "events")), verbatimHeader(jsjson.Get(v, "from")))
			}
			if jsjson.Get(v, "error") != nil {
				var he *HeaderError
				w, known := refusals[name]
				if !known || !errors.As(err, &he) || he.Seq != w.seq || he.Path != w.path || he.Refusal != w.kind {
					t.Errorf("%s %s: error %v, want %v", era, name, err, w)
				}
				if known && w.kind == RefusalNoSnapshot && !errors.Is(err, ErrNoSnapshot) {
					t.Errorf("%s %s: %v is not ErrNoSnapshot", era, name, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s %s: %v", era, name, err)
				continue
			}
			if diff := cmp.Diff(string(jsjson.Get(v, "result")), string(h.JSON())); diff != "" {
				t.Errorf("%s %s: (-want +got)\n%s", era, name, diff)
			}
		}
		if n != want {
			t.Errorf("era %s: %d vectors, want %d", era, n, want)
		}
	}
}

// fileMember reads the elements of one list in a JSON file.
func fileMember(t *testing.T, path, key string) (out [][]byte) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text, _, err := jsjson.Stringify(raw)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	for v := range jsjson.Elements(jsjson.Get(text, key)) {
		out = append(out, v)
	}
	return out
}
