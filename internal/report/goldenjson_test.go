package report

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/pkg/drift"
	goldens "github.com/dsh-audit/dsh-audit/pkg/golden"
)

// Events of a golden have no time, whether they made a difference or belong to it.
// What a file says that was edited is hostile like a log.
func TestGoldenJSON(t *testing.T) {
	cause := &drift.Cause{Kind: "header", Event: &drift.EventRef{Seq: 5, Time: 7, Type: "request/header"},
		With: []drift.EventRef{{Seq: 3, Time: 6, Type: "request/header\x1b[31m"}}}
	with := cause.With
	now := &goldens.Request{Name: "1.1", Grade: "exact", Bytes: 3}
	g := &Golden{Dir: "d\x1b", Log: "l\xff", Word: "differs", Now: &goldens.Golden{Verdict: "ok", Requests: []goldens.Request{*now}},
		Files: []GoldenFile{{"golden.json", "changed"}},
		Diff: &goldens.Diff{Verdict: [2]string{"o\x1bk", "ok"}, Header: true, Findings: []goldens.FindingChange{{Rule: "\x1b", Severity: "\u202e", Before: 1}},
			Requests: []goldens.RequestChange{{Name: "1.1", State: goldens.Changed, Now: now, Before: &goldens.Request{Grade: "\x1b", Reasons: []string{"\x07"}, State: "\x1b"},
				Diff: &drift.Diff{Session: &drift.Change{A: []byte(`"a\u001b"`), B: []byte(`"b"`), Cause: cause}}}}},
	}
	var out bytes.Buffer
	w, err := NewGoldenStream(&out, true, DiffOptions{}, "check")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Golden(g); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	const zeros = "0000000000000000000000000000000000000000000000000000000000000000"
	want := `{"schema":"dsh-audit/goldens/1","command":"check","results":[
{"golden":"d\u001b","log":"l\\xff","outcome":"differs","verdict":"ok","requests":1,"normalize":[],"paths":[],"files":[{"name":"golden.json","change":"changed"}],` +
		`"diff":{"verdict":{"before":"o\u001bk","now":"ok"},"findings":[{"rule":"\u001b","severity":"\u202e","before":1,"now":0}],"headerDiffers":true,"requestsSame":0,` +
		`"requests":[{"request":"1.1","kind":"changed","before":{"grade":"\u001b","reasons":["\u0007"],"state":"\u001b","bytes":0,"sha256":"` + zeros + `"},` +
		`"now":{"grade":"exact","bytes":3,"sha256":"` + zeros + `"},"same":false,"extends":false,"firstDivergentByte":null,"firstDivergentPath":null,` +
		`"header":{"equal":true,"changes":[]},"sessionId":{"a":"a\u001b","b":"b","cause":{"kind":"header","seq":5,"type":"request/header","events":[{"seq":3,"type":"request/header\u001b[31m"}]}},` +
		`"messages":{"a":0,"b":0,"kept":0,"changes":[]},"unexplained":0}],"eventsSame":0,"events":[],"stale":false}}
],"summary":{"goldens":1,"outcomes":{"differs":1}}}
`
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if with[0].Time != 6 {
		t.Error("the history lost the time of an event")
	}
}
