package fold

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// TestFixtureRequests: the requests of a fixture are those that were recorded,
// with the fixture's tokens in them, wherever prompt and tools are known; where
// they are not, they are graded so.
func TestFixtureRequests(t *testing.T) {
	for _, c := range []struct {
		log, recorded string
		exact, open   int // requests by what is left open: nothing of the header, or its tokens
		assumed       []string
		lastHeader    string
	}{
		{"packed-tools/session.jsonl", "requests.jsonl", 4, 0, []string{AssumeFixture, AssumeSnapshot}, ""},
		{"unscrubbed/session.jsonl", "requests.jsonl", 6, 0, []string{AssumeFixture}, ""},
		{"changes/session.jsonl", "requests.jsonl", 10, 0, []string{AssumeFixture, AssumeSnapshot}, ""},
		{"early-files/session.jsonl", "requests.jsonl", 3, 0, []string{AssumeFixture, AssumeSnapshot}, ""},
		{"family/session.jsonl", "requests.jsonl", 3, 0, []string{AssumeFixture, AssumeSnapshot}, ""},
		{"family/session.1.jsonl", "requests.1.jsonl", 2, 0, []string{AssumeFixture, AssumeSnapshot}, ""},
		{"no-files/session.jsonl", "requests.jsonl", 0, 1, []string{AssumeFixture}, `{"config":{"provider":"mocha","model":"mocha-1"},"system":"{{system}}"}`},
		// Deltas that refer to texts which are not there are known for it, and not applied.
		{"early-deltas/session.jsonl", "requests.jsonl", 0, 16, nil, `{"config":{"model":"quill-1"},"system":"{{system}}","tools":"{{tools}}"}`},
		{"early-prefix/session.jsonl", "requests.jsonl", 0, 4, nil, `{"config":{"model":"quill-1"},"system":"{{system}}","messagePrefix":["{{messagePrefix}}"]}`},
	} {
		t.Run(c.log, func(t *testing.T) {
			dir := filepath.Join("..", "logfmt", "testdata", "fixtures")
			raw, err := os.ReadFile(filepath.Join(dir, filepath.Dir(c.log), c.recorded))
			if err != nil {
				t.Fatal(err)
			}
			recorded := bytes.Split(bytes.TrimSuffix(raw, []byte("\n")), []byte("\n"))
			log, err := logfmt.OpenFile(filepath.Join(dir, c.log), logfmt.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			exact, open, n := 0, 0, 0
			var last *Request
			for r, err := range Requests(log, Options{}) {
				if err != nil {
					t.Fatal(err)
				}
				if r.Inherited || r.Candidate != "" {
					continue
				}
				if n == len(recorded) {
					t.Fatalf("request %d.%d is not among the %d recorded", r.Turn, r.Step, len(recorded))
				}
				want := jsjson.Get(recorded[n], "request")
				n++
				last = r.Clone()
				for _, a := range c.assumed {
					if !slices.Contains(r.Assumptions, a) {
						t.Errorf("request %d.%d assumes %v, want %s among them", r.Turn, r.Step, r.Assumptions, a)
					}
				}
				if slices.Contains(r.Reasons, ReasonScrubbed) {
					open++
					// Messages do not depend on what is missing, but for the prefix.
					if strings.HasPrefix(c.log, "early-prefix") {
						continue
					}
					if got := jsjson.Get(r.AppendBody(nil), "messages"); !bytes.Equal(got, jsjson.Get(want, "messages")) {
						t.Errorf("request %d.%d: messages\ngot  %s\nwant %s", r.Turn, r.Step, got, jsjson.Get(want, "messages"))
					}
					continue
				}
				exact++
				if got := r.AppendBody(nil); !bytes.Equal(got, want) {
					t.Errorf("request %d.%d:\ngot  %s\nwant %s", r.Turn, r.Step, got, want)
				}
			}
			if exact != c.exact || open != c.open || n != len(recorded) {
				t.Errorf("%d requests rebuilt, %d left open, want %d and %d; %d are recorded", exact, open, c.exact, c.open, len(recorded))
			}
			if c.lastHeader != "" && string(last.Header().JSON()) != c.lastHeader {
				t.Errorf("last header %s, want %s", last.Header().JSON(), c.lastHeader)
			}
		})
	}
}

func TestScrubDelta(t *testing.T) {
	h := &EpochHeader{Config: []byte(`{"model":"a"}`), System: []byte(`"{{system}}"`), Tools: []byte(`"{{tools}}"`), MessagePrefix: []byte(`["{{messagePrefix}}"]`)}
	for delta, want := range map[string]string{
		`{"config":{"model":"b"}}`:                                               `{"config":{"model":"b"},"system":"{{system}}","tools":"{{tools}}","messagePrefix":["{{messagePrefix}}"]}`,
		`{"system":{"keepStart":40,"keepEnd":2,"insert":[]}}`:                    `{"config":{"model":"a"},"system":"{{system}}","tools":"{{tools}}","messagePrefix":["{{messagePrefix}}"]}`,
		`{"tools":{"added":[],"removed":["x"],"changed":[]},"messagePrefix":[]}`: `{"config":{"model":"a"},"system":"{{system}}","tools":"{{tools}}"}`,
		`{"messagePrefix":["{{messagePrefix}}","{{messagePrefix}}"]}`:            `{"config":{"model":"a"},"system":"{{system}}","tools":"{{tools}}","messagePrefix":"{{messagePrefix}}"}`,
	} {
		f := HeaderFold{Header: h}
		if ok, err := f.Add(&logfmt.Event{Type: logfmt.TypeRequestHeaderDelta, Data: []byte(delta)}); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if got := string(f.Header.JSON()); got != want || !f.Header.Scrubbed() {
			t.Errorf("%s:\ngot  %s\nwant %s", delta, got, want)
		}
	}
	if string(h.System) != `"{{system}}"` || string(h.Config) != `{"model":"a"}` {
		t.Error("the header before was changed")
	}
}
