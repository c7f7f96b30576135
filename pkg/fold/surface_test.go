package fold

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// TestVectorsSurface runs the recorded surfaces of four builds: where the
// harness gave nodes ours are the same and nothing it refuses is found; where it
// refused, the fault it named is found.
func TestVectorsSurface(t *testing.T) {
	eras := map[string]Era{"a": E1, "b": E3, "b2": E4, "c": E6}
	faults := []struct {
		text  string
		fault SurfaceFault
	}{
		{"not found in surface", FaultRange},
		{"is after end seq", FaultRange},
		{"must include every shadowed", FaultShadow},
		{"must not be empty", FaultEmpty},
		{"must not contain duplicates", FaultSources},
		{"must reference earlier events", FaultSources},
		{"must densely contain", FaultSources},
		{"must be an array", FaultSources},
		{"surface-eligible but carries no", FaultMarker},
		{"requires a surfaceOp marker", FaultMarker},
		{"is not surface-eligible", FaultEligible},
		{"carries an invalid", FaultOpShape},
		{"Cannot read properties of null", FaultOpShape},
		{"tool/result surface replacement", FaultRewrite},
	}
	count := map[string]int{}
	for name, era := range eras {
		for _, v := range vectors(t, july(name+"-surface-fold")) {
			label := name + "/" + str(t, v, "name")
			want := jsjson.Get(v, "nodes")
			text, refused := "", false
			for _, key := range []string{"seedError", "surfaceError"} {
				if s, ok := jsjson.Str(jsjson.Get(v, key)); ok {
					text, refused = s, true
				}
			}
			if strings.Contains(text, "must be contiguous") || strings.Contains(text, "JSON-serializable") {
				count["not about the surface"]++
				continue
			}
			var s Surface
			var found []SurfaceFault
			for e := range eventSeq(jsjson.Get(v, "events")) {
				_, errs := s.Apply(e, Eras{era, era})
				for _, err := range errs {
					if RefusedBy(era).Has(err.Fault) {
						found = append(found, err.Fault)
					}
				}
			}
			if !refused {
				if len(found) > 0 {
					t.Errorf("%s: found %v in what the harness accepts", label, found)
				}
				if got := appendSeqs(nil, s.Seqs(nil)); string(got) != string(want) {
					t.Errorf("%s: nodes %s, want %s", label, got, want)
				}
				count["accepted"]++
				continue
			}
			wanted, ok := SurfaceFault(0), false
			for _, f := range faults {
				if strings.Contains(text, f.text) {
					wanted, ok = f.fault, true
					break
				}
			}
			if !ok {
				t.Fatalf("%s: no fault is known for %q", label, text)
			}
			switch {
			case era < E5 && (wanted == FaultOpShape || len(found) == 0):
				// The old fold did not look at the shape and stumbled over what it found.
				if !hasFault(jsjson.Get(v, "events"), era, FaultOpShape) {
					t.Errorf("%s: no fault found for %q", label, text)
				}
			case len(found) == 0 || found[0] != wanted:
				t.Errorf("%s: found %v, want %v first, for %q", label, found, wanted, text)
			}
			count["refused"]++
		}
	}
	want := map[string]int{"accepted": 86, "refused": 74, "not about the surface": 12}
	if diff := cmp.Diff(want, count); diff != "" {
		t.Errorf("vectors (-want +got):\n%s", diff)
	}
}

// hasFault folds afresh and reports whether any event has the fault.
func hasFault(events []byte, era Era, f SurfaceFault) bool {
	var s Surface
	for e := range eventSeq(events) {
		_, errs := s.Apply(e, Eras{era, era})
		for _, err := range errs {
			if err.Fault == f {
				return true
			}
		}
	}
	return false
}

func user(seq string, op string, more ...string) string {
	return `{"type":"user/message","seq":` + seq + `,"time":0,"data":{"content":[],"source":{"kind":"user"},"role":"user","id":"u` + seq + `"}` +
		strings.Join(more, "") + `,"surfaceOp":` + op + `}`
}

func result(seq, turn, id, isError, text, op, sources string) string {
	return `{"type":"tool/result","seq":` + seq + `,"time":0,"data":{"turn":` + turn + `,"step":1,"message":{"source":{"kind":"tool","callId":"c"},"content":[{"type":"tool-result","toolCallId":"c","content":[{"type":"text","text":"` +
		text + `"}],"isError":` + isError + `}],"role":"user","id":"` + id + `"}},"sourceEventSeqs":` + sources + `,"surfaceOp":` + op + `}`
}

func TestSurfaceFaults(t *testing.T) {
	legacy := `{"type":"tool/result","seq":0,"time":0,"data":{"turn":1,"step":1,"callId":"c","content":[],"isError":false,"meta":{"a":1}},"surfaceOp":"append"}`
	upgraded := func(id, meta string) string {
		return `{"type":"tool/result","seq":1,"time":0,"data":{"turn":1,"step":1,"message":{"id":"` + id + `","role":"user","content":[{"type":"tool-result","toolCallId":"c","content":[{"type":"text","text":"x"}],"isError":false}],"source":{"kind":"tool","callId":"c"}},"meta":` + meta + `},"sourceEventSeqs":[0],"surfaceOp":{"op":"replace","start":0,"end":0}}`
	}
	cases := []struct {
		name   string
		events []string
		era    Eras
		want   string // faults of the last event, one a line
		nodes  string
	}{
		{"no marker", []string{`{"type":"user/message","seq":0,"time":0,"data":{"content":[]}}`}, Eras{E2, E2},
			"marker: a message without surfaceOp is not seen by the model", `[]`},
		{"marker on a turn", []string{user("0", `"append"`), `{"type":"turn/end","seq":1,"time":0,"data":{},"sourceEventSeqs":[0],"surfaceOp":"append"}`}, Eras{E2, E13},
			"eligible: this type takes no place on the surface and cannot carry surfaceOp\neligible: this type takes no place on the surface and cannot carry sourceEventSeqs", `[0]`},
		{"context after its time", []string{`{"type":"context/message","seq":0,"time":0,"data":{"content":[]},"surfaceOp":"append"}`}, Eras{E7, E8},
			"eligible: this type takes no place on the surface and cannot carry surfaceOp", `[0]`},
		{"context in its time", []string{`{"type":"context/message","seq":0,"time":0,"data":{"content":[]},"surfaceOp":"append"}`}, Eras{E6, E8}, "", `[0]`},
		{"steering after its time", []string{`{"type":"steering/message","seq":0,"time":0,"data":{},"surfaceOp":"append"}`}, Eras{E10, E13},
			"eligible: this type takes no place on the surface and cannot carry surfaceOp", `[0]`},
		{"op null", []string{user("0", `null`)}, Eras{E5, E5},
			"op: surfaceOp is neither \"append\" nor {\"op\":\"replace\",\"start\":seq,\"end\":seq}", `[]`},
		{"op with one key more", []string{user("0", `"append"`), user("1", `{"op":"replace","start":0,"end":0,"why":1}`, `,"sourceEventSeqs":[0]`)}, Eras{E5, E5},
			"op: surfaceOp is not exactly {\"op\":\"replace\",\"start\":seq,\"end\":seq}", `[1]`},
		{"op with another verb", []string{user("0", `"append"`), user("1", `{"op":"delete","start":0,"end":0}`, `,"sourceEventSeqs":[0]`)}, Eras{E5, E5},
			"op: surfaceOp is not exactly {\"op\":\"replace\",\"start\":seq,\"end\":seq}", `[1]`},
		{"start unknown", []string{user("0", `"append"`), user("1", `{"op":"replace","start":7,"end":0}`)}, Eras{E5, E5},
			"range: replace starts at seq 7, which is not on the surface", `[0]`},
		{"end unknown", []string{user("0", `"append"`), user("1", `{"op":"replace","start":0,"end":7}`)}, Eras{E5, E5},
			"range: replace ends at seq 7, which is not on the surface", `[0]`},
		{"reversed", []string{user("0", `"append"`), user("1", `"append"`), user("2", `{"op":"replace","start":1,"end":0}`)}, Eras{E5, E5},
			"range: replace starts at seq 1 (position 1), after its end seq 0 (position 0)", `[0,1]`},
		{"numerically reversed", []string{user("0", `"append"`), user("1", `"append"`), user("2", `{"op":"replace","start":0,"end":0}`, `,"sourceEventSeqs":[0]`), user("3", `{"op":"replace","start":2,"end":1}`, `,"sourceEventSeqs":[2,1]`)}, Eras{E5, E13}, "", `[3]`},
		{"sources no array", []string{user("0", `"append"`, `,"sourceEventSeqs":{}`)}, Eras{E5, E5},
			"sources: sourceEventSeqs is not an array", `[0]`},
		{"sources odd", []string{user("0", `"append"`, `,"sourceEventSeqs":[0.5]`)}, Eras{E5, E5},
			"sources: sourceEventSeqs holds something else than non-negative integers", `[0]`},
		{"sources twice and late", []string{user("0", `"append"`), user("1", `"append"`, `,"sourceEventSeqs":[0,3,0]`)}, Eras{E5, E5},
			"sources: sourceEventSeqs cites seq 0 twice\nsources: sourceEventSeqs cites seq 3, which is not an earlier event", `[0,1]`},
		{"sources empty", []string{user("0", `"append"`, `,"sourceEventSeqs":[]`)}, Eras{E5, E5},
			"empty: sourceEventSeqs is empty; only an assistant/message may cite an empty stream", `[0]`},
		{"sources empty on an answer", []string{`{"type":"assistant/message","seq":0,"time":0,"data":{},"sourceEventSeqs":[],"surfaceOp":"append"}`}, Eras{E5, E5}, "", `[0]`},
		{"shadowed not cited", []string{user("0", `"append"`), user("1", `"append"`), user("2", `{"op":"replace","start":0,"end":1}`, `,"sourceEventSeqs":[0]`)}, Eras{E5, E5},
			"shadow: sourceEventSeqs does not cite the replaced seq 1", `[2]`},
		{"shadowed without sources", []string{user("0", `"append"`), user("1", `{"op":"replace","start":0,"end":0}`)}, Eras{E5, E5},
			"shadow: sourceEventSeqs does not cite the replaced seq 0", `[1]`},
		{"rewrite", []string{result("0", "1", "m", "false", "long", `"append"`, `[]`), result("1", "1", "m", "false", "short", `{"op":"replace","start":0,"end":0}`, `[0]`)}, Eras{E9, E13}, "", `[1]`},
		{"rewrite of the id", []string{result("0", "1", "m", "false", "long", `"append"`, `[]`), result("1", "1", "n", "false", "short", `{"op":"replace","start":0,"end":0}`, `[0]`)}, Eras{E9, E13},
			"rewrite: a tool result that replaces seq 0 changes message.id; only content may change", `[1]`},
		{"rewrite of isError", []string{result("0", "1", "m", "false", "long", `"append"`, `[]`), result("1", "1", "m", "true", "short", `{"op":"replace","start":0,"end":0}`, `[0]`)}, Eras{E9, E13},
			"rewrite: a tool result that replaces seq 0 changes message.content[0].isError; only content may change", `[1]`},
		{"rewrite of the turn", []string{result("0", "1", "m", "false", "long", `"append"`, `[]`), result("1", "2", "m", "false", "short", `{"op":"replace","start":0,"end":0}`, `[0]`)}, Eras{E9, E13},
			"rewrite: a tool result that replaces seq 0 changes turn; only content may change", `[1]`},
		{"rewrite of two", []string{result("0", "1", "m", "false", "a", `"append"`, `[]`), result("1", "1", "n", "false", "b", `"append"`, `[]`), result("2", "1", "m", "false", "c", `{"op":"replace","start":0,"end":1}`, `[0,1]`)}, Eras{E9, E13},
			"rewrite: a tool result replaces 2 nodes; it may replace one tool result", `[2]`},
		{"rewrite of a user message", []string{user("0", `"append"`), result("1", "1", "m", "false", "c", `{"op":"replace","start":0,"end":0}`, `[0]`)}, Eras{E9, E13},
			"rewrite: a tool result replaces seq 0, which is no tool result", `[1]`},
		{"rewrite of an upgraded result", []string{legacy, upgraded("legacy-message:s:0", `{"a":1}`)}, Eras{E9, E13}, "", `[1]`},
		{"rewrite of an upgraded result's meta", []string{legacy, upgraded("legacy-message:s:0", `{"a":2}`)}, Eras{E9, E13},
			"rewrite: a tool result that replaces seq 0 changes meta; only content may change", `[1]`},
		{"rewrite of an upgraded result's id", []string{legacy, upgraded("legacy-message:s:1", `{"a":1}`)}, Eras{E9, E13},
			"rewrite: a tool result that replaces seq 0 changes message.id; only content may change", `[1]`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var s Surface
			var errs []*SurfaceError
			for i, raw := range c.events {
				e := event([]byte(raw))
				before := appendSeqs(nil, s.Seqs(nil))
				change, checked := s.Check(e, c.era)
				if got := appendSeqs(nil, s.Seqs(nil)); string(got) != string(before) {
					t.Errorf("Check changed the surface: %s to %s", before, got)
				}
				var did Change
				did, errs = s.Apply(e, c.era)
				if did != change {
					t.Errorf("event %d: Apply did %d, Check said %d", i, did, change)
				}
				if diff := cmp.Diff(checked, errs); diff != "" {
					t.Errorf("event %d: Apply and Check disagree: %s", i, diff)
				}
			}
			var lines []string
			for _, err := range errs {
				lines = append(lines, err.Fault.String()+": "+err.Detail)
			}
			if diff := cmp.Diff(c.want, strings.Join(lines, "\n")); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
			if got := string(appendSeqs(nil, s.Seqs(nil))); got != c.nodes {
				t.Errorf("nodes %s, want %s", got, c.nodes)
			}
		})
	}
}

// TestSurfaceSnapshots holds what Nodes returned to what it was, through appends
// and replaces.
func TestSurfaceSnapshots(t *testing.T) {
	var s Surface
	script := []string{
		user("0", `"append"`), user("1", `"append"`), user("2", `"append"`),
		user("3", `{"op":"replace","start":0,"end":1}`, `,"sourceEventSeqs":[0,1]`),
		user("4", `"append"`),
		user("5", `{"op":"replace","start":2,"end":4}`, `,"sourceEventSeqs":[2,4]`),
		user("6", `{"op":"replace","start":3,"end":3}`, `,"sourceEventSeqs":[3]`),
		user("7", `"append"`),
	}
	want := []string{`[0]`, `[0,1]`, `[0,1,2]`, `[3,2]`, `[3,2,4]`, `[3,5]`, `[6,5]`, `[6,5,7]`}
	var taken [][]*Node
	for i, raw := range script {
		if _, errs := s.Apply(event([]byte(raw)), Eras{E9, E13}); len(errs) > 0 {
			t.Fatal(errs[0])
		}
		if i != 4 { // one replace must work on an array that no one has seen
			taken = append(taken, s.Nodes())
		} else {
			taken = append(taken, nil)
		}
	}
	for i, nodes := range taken {
		if i == 4 {
			continue
		}
		var seqs []int64
		for _, n := range nodes {
			seqs = append(seqs, n.Seq)
		}
		if got := string(appendSeqs(nil, seqs)); got != want[i] {
			t.Errorf("after event %d: %s, want %s", i, got, want[i])
		}
	}
	const full = `{"nodes":[6,5,7],"replacements":[{"seq":3,"start":0,"end":1,"shadowedSeqs":[0,1]},{"seq":5,"start":2,"end":4,"shadowedSeqs":[2,4]},{"seq":6,"start":3,"end":3,"shadowedSeqs":[3]}]}`
	if got := string(s.AppendJSON(nil)); got != full {
		t.Errorf("surface %s, want %s", got, full)
	}
	if s.Generation() != 3 {
		t.Errorf("generation %d, want 3", s.Generation())
	}
}

func TestEligible(t *testing.T) {
	for _, c := range []struct {
		typ  string
		eras Eras
		want bool
	}{
		{logfmt.TypeUserMessage, Eras{E0, E0}, true},
		{logfmt.TypeToolResult, Eras{E13, E13}, true},
		{logfmt.TypeContextMessage, Eras{E6, E13}, true},
		{logfmt.TypeContextMessage, Eras{E7, E13}, false},
		{logfmt.TypeSteeringMessage, Eras{E9, E13}, true},
		{logfmt.TypeSteeringMessage, Eras{E10, E13}, false},
		{logfmt.TypeTurnStart, Eras{E0, E13}, false},
		{"gull/seen", Eras{E0, E13}, false},
	} {
		if got := Eligible(c.typ, c.eras); got != c.want {
			t.Errorf("Eligible(%s, %v) = %v", c.typ, c.eras, got)
		}
	}
}
