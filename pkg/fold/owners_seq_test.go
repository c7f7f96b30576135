package fold

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// A step whose start has no usable seq is inherited only where the count of events
// is still below the seed; and a log without a header record inherits nothing.
func TestInheritedWithoutSeq(t *testing.T) {
	events := func(from int) (s string) {
		for i, e := range []string{
			`"turn/start","seq":%d,"time":1,"data":{"turn":1}`,
			`"step/start","seq":"x","time":1,"data":{"turn":1,"step":1}`,
			`"assistant/chunk","seq":%d,"time":1,"data":{"turn":1,"step":1,"chunk":{"type":"finish","reason":{"kind":"stop"}}}`,
			`"assistant/message","seq":%d,"time":1,"data":{"turn":1,"step":1,"message":{"role":"assistant","content":[],"source":{"kind":"model","provider":"p","model":"m"},"id":"a"}},"sourceEventSeqs":[2],"surfaceOp":"append"`,
			`"step/end","seq":%d,"time":1,"data":{"turn":1,"step":1}`,
		} {
			if strings.Contains(e, "%d") {
				e = fmt.Sprintf(e, from+i)
			}
			s += `{"type":` + e + "}\n"
		}
		return s
	}
	head := func(more string) string {
		return `{"type":"session","version":0,"id":"s","createdAt":1,"cwd":"/w","delegationDepth":0` + more + "}\n"
	}
	for _, c := range []struct {
		name, text string
		inherited  bool
	}{
		{"no header record", `{"type":"sess` + "\n" + events(0), false},
		{"a log of its own", head("") + events(0), false},
		{"below the seed", head(`,"parentSession":"p","seedLength":9`) + events(0), true},
		{"behind the seed", head(`,"parentSession":"p","seedLength":1`) + events(0), false},
	} {
		log, err := logfmt.NewReader(strings.NewReader(c.text), "log", logfmt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		f := New(log.Header, Options{})
		n := 0
		take := func(rs []*Request) {
			for _, r := range rs {
				if n++; r.Inherited != c.inherited {
					t.Errorf("%s: inherited %t, want %t", c.name, r.Inherited, c.inherited)
				}
			}
		}
		for e, d := range log.Events() {
			if d == nil {
				take(f.Add(e))
			}
		}
		if take(f.End()); n != 1 {
			t.Errorf("%s: %d requests, want 1", c.name, n)
		}
	}
}
