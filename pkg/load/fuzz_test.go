package load

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

// FuzzLoad loads any text. What is loaded is a log that loads as it is: nothing
// is left to upgrade or to add, and nothing in it is refused.
func FuzzLoad(f *testing.F) {
	data, err := os.ReadFile("testdata/headload.json")
	if err != nil {
		f.Fatal(err)
	}
	var cases []struct{ Events []string }
	if err := json.Unmarshal(data, &cases); err != nil {
		f.Fatal(err)
	}
	for _, c := range cases {
		f.Add(strings.Join(append(c.Events, ""), "\n"))
	}
	f.Add(`{"type":"turn/start","seq":0,"time":1,"data":{"turn":1}}` + "\n" +
		`{"type":"assistant/message","seq":1,"time":1,"data":{"turn":1,"step":1,"message":{"id":"a","role":"assistant","content":[{"type":"tool-call","id":"c"}],"source":{"kind":"model","provider":"p","model":"m"}}},"surfaceOp":"append"}` + "\n" +
		`{"type":"tool/call","seq":2,"time":1,"data":{"callId":"c"}}` + "\n")
	f.Fuzz(func(t *testing.T, events string) {
		first := loadBytes(t, "s.jsonl", []byte(header+events), Options{})
		if first.Refusal != nil {
			if first.Closers != nil {
				t.Error("closers for a log that is refused")
			}
			return
		}
		if first.Unjudged != "" {
			return
		}
		second := loadBytes(t, "s.jsonl", []byte(header+first.text()), Options{})
		if second.Refusal != nil {
			t.Fatalf("what was loaded is refused: %v\n%s", second.Refusal, first.text())
		}
		if !slices.Equal(first.events, second.events) || second.Upgraded != 0 || second.Closers != nil {
			t.Errorf("loaded again it differs:\n%s\n%s", first.text(), second.text())
		}
	})
}
