package fold

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// folded is what the fold makes of a whole log.
type folded struct {
	requests   []*Request // those that were sent
	all        []*Request // and candidates
	candidates int
	messages   [][]byte
	chunks     []timedChunk
	ranged     int // events with pairs in sourceEventSeqs
}

type timedChunk struct {
	json string
	time int64
}

func foldWhole(t *testing.T, path string) *folded {
	t.Helper()
	l := openLog(t, path)
	defer l.Close()
	f := New(l.Header, Options{})
	out := &folded{}
	take := func(rs []*Request) {
		for _, r := range rs {
			out.all = append(out.all, r.Clone())
			if r.Candidate != "" {
				out.candidates++
				continue
			}
			out.requests = append(out.requests, r.Clone())
		}
	}
	for e, d := range l.Events() {
		if d != nil || e.AfterDamage {
			continue // a torn tail, which a migration drops
		}
		switch {
		case e.Type == logfmt.TypeAssistantChunk:
			out.chunks = append(out.chunks, timedChunk{string(jsjson.Get(e.Data, "chunk")), e.Time})
		case Settled(int64(e.Gen)) && (e.Type == logfmt.TypeAssistantMessage || e.Type == logfmt.TypeAssistantAttempt):
			for c, err := range ExpandStream(e.Data) {
				if err != nil {
					t.Fatalf("%s: seq %d: %v", path, e.Seq, err)
				}
				out.chunks = append(out.chunks, timedChunk{string(c.JSON), c.Time})
			}
		}
		if e.Fault&logfmt.FaultSourceRuns != 0 {
			out.ranged++
		}
		take(f.Add(e))
	}
	take(f.End())
	for _, m := range f.Messages() {
		out.messages = append(out.messages, bytes.Clone(m))
	}
	return out
}

// TestCorpusMigrated holds each log that the released converters wrote to the log
// it was made from: the same chunks at the same times, the same messages, the
// same requests.
func TestCorpusMigrated(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	count := map[string]int{}
	for _, m := range corpus.Migrations(t, dir) {
		if len(m.OK) == 0 {
			continue
		}
		t.Run(m.Case, func(t *testing.T) {
			src := foldWhole(t, m.Source)
			for _, version := range []string{"v1", "v2", "v3"} {
				if _, ok := m.OK[version]; !ok {
					continue
				}
				got := foldWhole(t, m.Log(dir, version))
				want := *src
				switch m.Case {
				case "legacy-messages":
					// A migration rewrites what is older than August, and so does a
					// load: what the harness then held was recorded.
					want.messages = recordedMessages(t, filepath.Join(filepath.Dir(m.Source), "messages.json"))
					want.requests, got.requests = nil, nil
				case "invalid-sources-empty-assistant":
					// The answer cites no chunks: a migration makes a failed attempt of
					// them, and an answer with no stream.
					if version != "v1" {
						if len(got.requests) != 2 || got.requests[0].Response >= 0 || got.requests[1].Response < 0 {
							t.Errorf("%s: %d requests, want a failed attempt and an answer", version, len(got.requests))
						}
						want.requests, got.requests = nil, nil
					}
				}
				compareMigrated(t, version, &want, got, count)
			}
		})
	}
	t.Logf("%v", count)
	want := map[string]int{
		"v1 logs": 189, "v1 requests": 553, "v1 exact": 520, "v1 ambiguous": 33, "v1 chunks": 8988, "v1 lists with pairs": 497,
		"v2 logs": 163, "v2 requests": 467, "v2 exact": 455, "v2 ambiguous": 12, "v2 chunks": 8132, "v2 lists with pairs": 0,
		"v3 logs": 162, "v3 requests": 463, "v3 exact": 451, "v3 ambiguous": 12, "v3 chunks": 8091, "v3 lists with pairs": 0,
	}
	if d := cmp.Diff(want, count); d != "" {
		t.Errorf("counts (-want +got):\n%s", d)
	}
}

func compareMigrated(t *testing.T, version string, src, got *folded, count map[string]int) {
	count[version+" logs"]++
	count[version+" lists with pairs"] += got.ranged
	if !slices.Equal(src.chunks, got.chunks) {
		t.Errorf("%s: %d chunks, want %d (or others)", version, len(got.chunks), len(src.chunks))
	}
	count[version+" chunks"] += len(got.chunks)
	messages, _ := splitPrompt(version, got.messages)
	if d := diffLists(src.messages, messages); d != "" {
		t.Errorf("%s: messages at the end: %s", version, d)
	}
	if len(src.requests) != len(got.requests) {
		t.Errorf("%s: %d requests, want %d", version, len(got.requests), len(src.requests))
		return
	}
	for i, want := range src.requests {
		r := got.requests[i]
		name := fmt.Sprintf("%s %d.%d.%d", version, want.Turn, want.Step, want.Attempt)
		if r.Turn != want.Turn || r.Step != want.Step || r.Attempt != want.Attempt || r.Finish != want.Finish || r.Inherited != want.Inherited {
			t.Errorf("%s: got %d.%d.%d, finish %q, want %q; inherited %v, want %v", name, r.Turn, r.Step, r.Attempt, r.Finish, want.Finish, r.Inherited, want.Inherited)
		}
		count[version+" requests"]++
		if version == "v1" && r.Grade != want.Grade {
			t.Errorf("%s: grade %s, want %s: %v, %v", name, r.Grade, want.Grade, r.Reasons, want.Reasons)
		}
		count[version+" "+string(r.Grade)]++
		body := r.AppendBody(nil)
		if int64(len(body)) != r.Len() {
			t.Errorf("%s: length %d, want %d", name, r.Len(), len(body))
		}
		if slices.Contains(r.Reasons, ReasonBoundary) {
			count[version+" late"]++
			continue
		}
		wantBody := want.AppendBody(nil)
		if version != "v3" {
			if !bytes.Equal(wantBody, body) {
				t.Errorf("%s: body\n%s\nwant\n%s", name, body, wantBody)
			}
			continue
		}
		var all [][]byte
		for v := range jsjson.Elements(jsjson.Get(body, "messages")) {
			all = append(all, v)
		}
		rest, system := splitPrompt(version, all)
		if len(rest) != len(all)-len(system) || len(system) > 1 {
			t.Errorf("%s: %d prompts", name, len(system))
		}
		var prompt []byte
		if len(system) == 1 {
			prompt = jsjson.Get(jsjson.Index(jsjson.Get(system[0], "content"), 0), "text")
		}
		if !bytes.Equal(prompt, jsjson.Get(wantBody, "system")) {
			t.Errorf("%s: prompt %s, want %s", name, prompt, jsjson.Get(wantBody, "system"))
		}
		back := slices.Concat(body[:len(r.body.head)], bytes.Join(rest, []byte(",")))
		tail := string(bytes.Join(r.body.tail, nil))
		if prompt != nil {
			tail = strings.Replace(tail, "]", `],"system":`+string(prompt), 1)
		}
		if back = append(back, tail...); !bytes.Equal(back, wantBody) {
			t.Errorf("%s: body\n%s\nwant\n%s", name, back, wantBody)
		}
	}
}

// splitPrompt takes the prompts out of messages.
func splitPrompt(version string, messages [][]byte) (rest, system [][]byte) {
	if version != "v3" {
		return messages, nil
	}
	for _, m := range messages {
		if jsjson.StrEq(jsjson.Get(m, "role"), "system") {
			system = append(system, m)
			continue
		}
		rest = append(rest, m)
	}
	return rest, system
}

func diffLists(want, got [][]byte) string {
	for i := range max(len(want), len(got)) {
		switch {
		case i >= len(want):
			return fmt.Sprintf("%d, want %d", len(got), len(want))
		case i >= len(got):
			return fmt.Sprintf("%d, want %d", len(got), len(want))
		case !bytes.Equal(want[i], got[i]):
			return cmp.Diff(string(want[i]), string(got[i]))
		}
	}
	return ""
}

func recordedMessages(t *testing.T, path string) (out [][]byte) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	list, _, err := jsjson.Stringify(raw)
	if err != nil {
		t.Fatal(err)
	}
	for v := range jsjson.Elements(list) {
		out = append(out, v)
	}
	return out
}

// TestCorpusExamples pins the requests of the example log of each generation.
func TestCorpusExamples(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	for name, want := range map[string][]string{
		"v1.jsonl": {"1.1.1 exact [] before 7 (first-chunk) response 14 stop"},
		"v2.jsonl": {
			"1.1.1 exact [] before 7 (settlement) response -1 error",
			"1.1.2 exact [config-key-order] before 10 (settlement) response 10 tool-calls",
			"1.2.1 exact [config-key-order] before 15 (settlement) response 15 stop",
		},
		"v3.jsonl": {
			"1.1.1 exact [] before 9 (settlement) response 9 tool-calls",
			"1.2.1 exact [config-key-order] before 15 (settlement) response 15 ",
		},
		"v4.jsonl":               v4Example,
		"v4.live.jsonl.zstd":     v4Example,
		"v4.migrated.jsonl.zstd": v4Example,
	} {
		var got []string
		for _, r := range foldWhole(t, filepath.Join(dir, "migrated", "examples", name)).requests {
			got = append(got, fmt.Sprintf("%d.%d.%d %s %v before %d (%s) response %d %s", r.Turn, r.Step, r.Attempt, r.Grade,
				append(r.Assumptions, r.Reasons...), r.Boundary.Seq, r.Boundary.Rule, r.Response, r.Finish))
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

var v4Example = []string{
	"1.1.1 exact [tool-history] before 8 (settlement) response 8 tool-calls",
	"1.2.1 ambiguous [tool-history] before 15 (settlement) response 15 tool-calls",
}

// TestGenerationGoldens holds the logs of later generations that ship with the
// repository to the requests that were recorded before they were migrated. Those of
// generation 4 were written by hand: their requests are pinned.
func TestGenerationGoldens(t *testing.T) {
	logs, err := filepath.Glob(filepath.Join(corpus.Root(t), "goldens", "generations", "*", "session.v*.jsonl*"))
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, log := range logs {
		got := foldWhole(t, log)
		version, _, _ := strings.Cut(filepath.Base(filepath.Dir(log)), "-")
		count[version]++
		var own []*Request
		for _, r := range got.all { // here every candidate was sent
			if !r.Inherited {
				own = append(own, r)
			}
		}
		if version == "v4" {
			var lines []string
			for _, r := range own {
				lines = append(lines, fmt.Sprintf("%d.%d.%d %s %x", r.Turn, r.Step, r.Attempt, r.Grade, r.Sum()))
			}
			if d := cmp.Diff([]string{
				"1.1.1 exact ddcf5eed778e1753f259a44fd9574ef077c9e64097e930ec5cb43a9e9bd58b98",
				"1.1.2 exact ddcf5eed778e1753f259a44fd9574ef077c9e64097e930ec5cb43a9e9bd58b98",
				"1.2.1 ambiguous 0aab99415a4a292ae5800af2b4416a1efb64ac8a8115ee19b52c01ab8939c8ac",
			}, lines); d != "" {
				t.Errorf("%s (-want +got):\n%s", log, d)
			}
			continue
		}
		recorded := readRequests(t, filepath.Join(filepath.Dir(log), "requests.jsonl"))
		if len(recorded) != len(own) {
			t.Errorf("%s: %d requests, want %d", log, len(own), len(recorded))
			continue
		}
		for i, r := range own {
			count[version+" requests"]++
			body := r.AppendBody(nil)
			if version == "v3" {
				body = unrooted(body)
			}
			if !bytes.Equal(body, recorded[i].body) {
				t.Errorf("%s: %s:\n got %s\nwant %s", log, recorded[i], body, recorded[i].body)
			}
		}
	}
	if d := cmp.Diff(map[string]int{"v1": 1, "v1 requests": 1, "v2": 3, "v2 requests": 19, "v3": 4, "v3 requests": 18, "v4": 3}, count); d != "" {
		t.Errorf("counts (-want +got):\n%s", d)
	}
}

// unrooted is a body with the prompt where generations before 3 had it.
func unrooted(body []byte) []byte {
	var out, prompt []byte
	out = append(out, '{')
	for key, val := range jsjson.Members(body) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(out, key...), ':')
		if string(key) != `"messages"` {
			out = append(out, val...)
			continue
		}
		var all [][]byte
		for v := range jsjson.Elements(val) {
			all = append(all, v)
		}
		rest, system := splitPrompt("v3", all)
		out = append(append(append(out, '['), bytes.Join(rest, []byte(","))...), ']')
		if len(system) > 0 {
			prompt = jsjson.Get(jsjson.Index(jsjson.Get(system[0], "content"), 0), "text")
			out = append(append(out, `,"system":`...), prompt...)
		}
	}
	return append(out, '}')
}
