package drift

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

var (
	timeMember = regexp.MustCompile(`"(time|time0|createdAt)":([0-9]+)`)
	callMember = regexp.MustCompile(`"callId":"([^"\\]+)"`)
	idMember   = regexp.MustCompile(`"id":"([^"\\]+)"`)
)

// record again derives a second recording of the scenario in a plain log: other
// ids everywhere, other times that do not pass at the same speed, another
// directory.
func recordAgain(tb testing.TB, path string) []byte {
	tb.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	head, _, _ := bytes.Cut(text, []byte("\n"))
	cwd, _ := jsjson.Str(jsjson.Get(head, "cwd"))
	ids := map[string]bool{}
	for _, name := range []string{"id", "parentSession"} {
		if id, ok := jsjson.Str(jsjson.Get(head, name)); ok {
			ids[id] = true
		}
	}
	for _, m := range callMember.FindAllSubmatch(text, -1) {
		ids[string(m[1])] = true
	}
	for _, m := range idMember.FindAllSubmatch(text, -1) {
		ids[string(m[1])] = true
	}
	another := func(id string) string {
		sum := sha256.Sum256([]byte("again " + id))
		if uuidPattern.MatchString(id) && len(id) == 36 {
			return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
		}
		return fmt.Sprintf("%x", sum[:6])
	}
	var out bytes.Buffer
	for line := range bytes.Lines(text) {
		s := string(line)
		for id := range ids {
			s = strings.ReplaceAll(s, `"`+id+`"`, `"`+another(id)+`"`)
			s = strings.ReplaceAll(s, "interrupted-tool-result-"+id+"-", "interrupted-tool-result-"+another(id)+"-")
		}
		if cwd != "" {
			s = strings.ReplaceAll(s, cwd, "/home/ann/elsewhere")
		}
		s = timeMember.ReplaceAllStringFunc(s, func(m string) string {
			k := timeMember.FindStringSubmatch(m)
			n, _ := strconv.ParseInt(k[2], 10, 64)
			return fmt.Sprintf(`"%s":%d`, k[1], 86_400_000*400+n+n%977)
		})
		out.WriteString(s)
	}
	return out.Bytes()
}

func readRun(tb testing.TB, name string, text []byte) *Run {
	tb.Helper()
	log, err := logfmt.NewReader(bytes.NewReader(text), name, logfmt.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return ReadRun(log, fold.Options{}, func(err error) { tb.Errorf("%s: %v", name, err) })
}

// changeOneResult changes one tool result of a log that the model went on to
// see. It returns the seq of the event, -1 when there is none.
func changeOneResult(tb testing.TB, text []byte) ([]byte, int64) {
	tb.Helper()
	var lines [][]byte
	for line := range bytes.Lines(text) {
		lines = append(lines, line)
	}
	sent := -1 // the last line behind which something was sent
	for i, line := range lines {
		if jsjson.StrEq(jsjson.Get(bytes.TrimSpace(line), "type"), "assistant/chunk") {
			sent = i
		}
	}
	for i, line := range lines {
		e := bytes.TrimSpace(line)
		if i < sent && jsjson.StrEq(jsjson.Get(e, "type"), "tool/result") && bytes.Contains(e, []byte(`"surfaceOp":"append"`)) {
			at := bytes.Index(line, []byte(`"text":"`))
			if at < 0 {
				continue
			}
			at += len(`"text":"`)
			changed := append(append(bytes.Clone(line[:at]), "CHANGED "...), line[at:]...)
			seq, _ := jsjson.SafeInt(jsjson.Get(e, "seq"))
			lines[i] = changed
			return bytes.Join(lines, nil), seq
		}
	}
	return nil, -1
}

// checkAgain compares every recording with its second one, and with one in which
// one tool result is another.
func checkAgain(t *testing.T, logs []string) (compared, changed int) {
	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		again := recordAgain(t, path)
		a, b := readRun(t, path, text), readRun(t, path, again)
		if d := CompareRuns(a, b); !d.Same() {
			t.Errorf("%s: recorded again, it differs: %s", path, briefRuns(d))
		}
		compared++
		other, seq := changeOneResult(t, again)
		if seq < 0 {
			continue
		}
		d := CompareRuns(readRun(t, path, text), readRun(t, path, other))
		changed++
		if got, want := briefRuns(d), fmt.Sprintf("edited %d>%d", seq, seq); !strings.HasPrefix(got, want) || strings.Contains(got, ";") {
			t.Errorf("%s: one result changed: got %s, want %s", path, got, want)
		}
		for i := range d.Turns {
			for _, c := range d.Turns[i].Messages {
				if len(c.Values) != 0 || len(c.Blocks) != 1 || len(c.Blocks[0].Values) != 1 || c.Blocks[0].Values[0].Path != "content[0].text" {
					t.Errorf("%s: one result changed: got %+v", path, c.Blocks)
				}
			}
		}
	}
	return compared, changed
}

func briefRuns(d *RunsDiff) string {
	var out []string
	for i := range d.Turns {
		t := &d.Turns[i]
		seq := func(e *EventRef) int64 {
			if e == nil {
				return -1
			}
			return e.Seq
		}
		if t.A < 0 || t.B < 0 {
			out = append(out, fmt.Sprintf("turn %d>%d", t.A, t.B))
		}
		for _, c := range t.Messages {
			s := fmt.Sprintf("%s %d>%d", c.Kind, seq(c.EventA), seq(c.EventB))
			if len(c.Values) > 0 {
				s += briefValues(c.Values)
			}
			out = append(out, s)
		}
		for _, h := range t.Headers {
			out = append(out, fmt.Sprintf("header %s>%s %s", h.A, h.B, brief(h.Diff)))
		}
		for _, c := range t.Requests {
			out = append(out, fmt.Sprintf("request %s %s>%s", c.Name, c.A, c.B))
		}
		if t.End != nil {
			out = append(out, fmt.Sprintf("end %s>%s", t.End.A, t.End.B))
		}
	}
	return strings.Join(out, "; ")
}

func plainLogs(tb testing.TB, dirs ...string) (out []string) {
	tb.Helper()
	for _, dir := range dirs {
		for _, r := range recordings(tb, dir) {
			out = append(out, r.log)
		}
	}
	return out
}

func TestRunsAgain(t *testing.T) {
	compared, changed := checkAgain(t, plainLogs(t, filepath.Join(corpus.Root(t), "goldens", "sound"), filepath.Join(corpus.Root(t), "goldens", "drift")))
	if d := cmp.Diff([2]int{53, 23}, [2]int{compared, changed}); d != "" {
		t.Errorf("recordings compared, with one result changed (-want +got):\n%s", d)
	}
}

func TestCorpusRunsAgain(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("no corpus")
	}
	compared, changed := checkAgain(t, plainLogs(t, filepath.Join(dir, "head"), filepath.Join(dir, "july")))
	t.Logf("%d recordings compared, %d with one result changed", compared, changed)
}

// TestRuns changes one thing in a second recording.
func TestRuns(t *testing.T) {
	path := filepath.Join(corpus.Root(t), "goldens", "sound", "head-multi-step-tools", "session.jsonl")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	again := string(recordAgain(t, path))
	if bytes.Equal(text, []byte(again)) || strings.Contains(again, "oracle-multi-step-tools") || strings.Contains(again, "/srv/harbour") {
		t.Fatal("the second recording is the first")
	}
	swap := func(old, new string) func(string) string {
		return func(s string) string {
			if !strings.Contains(s, old) {
				t.Fatalf("%q is not in the log:\n%s", old, s)
			}
			return strings.ReplaceAll(s, old, new)
		}
	}
	// cross makes the second result answer the first call.
	cross := func(s string) string {
		calls := regexp.MustCompile(`"toolCallId":"([^"]+)"`).FindAllStringSubmatch(s, -1)
		return strings.Replace(s, `"toolCallId":"`+calls[1][1]+`"`, `"toolCallId":"`+calls[0][1]+`"`, 1)
	}
	line := regexp.MustCompile(`(?m)^.*"text":"rang 2".*\n`)
	tests := []struct {
		name   string
		change func(string) string
		want   string
	}{
		{"nothing", func(s string) string { return s }, ""},
		{"model", swap(`"config":{"provider":"mocha","model":"mocha-1"`, `"config":{"provider":"mocha","model":"mocha-2"`),
			`header 1.1>1.1 same; config model "mocha-1">"mocha-2"; kept 0`},
		{"a path elsewhere in the prompt", swap("You keep the harbour log.", "You keep the log in /home/ann/elsewhere/log."),
			`header 1.1>1.1 same; system  ["You are an AI agent powered by DeepSeek Harness." ""]; system ~["You keep the harbour log."]["You keep the log in {{cwd}}/log."]; kept 0`},
		{"crossed ids", cross, "edited 34>34"},
		{"prompt", swap("Compare the tides", "Compare the heights"), "edited 4>4"},
		{"a result is missing", func(s string) string {
			return line.ReplaceAllString(s, `{"type":"todo/write","seq":34,"time":1830541200000,"data":{"todos":[]}}`+"\n")
		}, "dropped 34>-1"},
		{"finish", func(s string) string {
			i := strings.LastIndex(s, `"reason":{"kind":"stop"}`)
			return s[:i] + strings.Replace(s[i:], "stop", "max-tokens", 1)
		}, `request 1.4 "stop">"max-tokens"`},
		{"end", swap(`"reason":{"kind":"completed"}`, `"reason":{"kind":"max-tokens"}`), `end {"kind":"completed"}>{"kind":"max-tokens"}`},
		{"time in a text", swap("tides@South", "tides at 2027-12-31T23:59:59Z South"), "edited 50>50"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := CompareRuns(readRun(t, "a", text), readRun(t, "b", []byte(tt.change(again))))
			if diff := cmp.Diff(tt.want, briefRuns(d)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestRunsAlign drops and adds whole turns.
func TestRunsAlign(t *testing.T) {
	path := filepath.Join(corpus.Root(t), "goldens", "sound", "c-resume-identical", "session.jsonl")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	again := recordAgain(t, path)
	cut := again[:bytes.LastIndex(again, []byte(`{"type":"turn/start"`))]
	if got, want := briefRuns(CompareRuns(readRun(t, "a", text), readRun(t, "b", cut))), `turn 4>-1; dropped 54>-1; dropped 63>-1; request 4.1 "stop">; end {"kind":"completed"}>`; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if got, want := briefRuns(CompareRuns(readRun(t, "a", cut), readRun(t, "b", text))), `turn -1>4; inserted -1>54; inserted -1>63; request 4.1 >"stop"; end >{"kind":"completed"}`; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestVolatile(t *testing.T) {
	v := newVolatiles(&History{SessionID: "session-1", Parent: "short", Cwd: "/srv/a/", CreatedAt: 1751900000000, first: 1751900000000, last: 1751900001000})
	v.learn([]byte(`{"source":{"callId":"call_17"},"id":"x1"}`))
	tests := []struct{ in, want string }{
		{`"plain"`, `"plain"`},
		{`{"id":"x","toolCallId":"y","ids":"z","attachmentId":"sha256:00","n":{"rpc_id":"q"}}`,
			`{"id":"{{id}}","toolCallId":"{{id}}","ids":"z","attachmentId":"sha256:00","n":{"rpc_id":"{{id}}"}}`},
		{`{"properties":{"id":{"type":"string"}}}`, `{"properties":{"id":{"type":"string"}}}`},
		{`"at /srv/a/b, /srv/a, /srv/ab, /x/srv/a, (/srv/a) and /private/srv/a."`, `"at {{cwd}}/b, {{cwd}}, /srv/ab, /x/srv/a, ({{cwd}}) and {{cwd}}."`},
		{`"see 5F0C0000-0000-4000-8000-00000000000a and x5f0c0000-0000-4000-8000-00000000000a"`, `"see {{id}} and x5f0c0000-0000-4000-8000-00000000000a"`},
		{`"session-1 session-12 call_17. x1"`, `"{{id}} session-12 {{id}}. x1"`},
		{`"2025-07-07T14:53:20.126Z, 2025-07-08 01:02 +02:00, 2025-07-07; 2024-07-07, 1751900000000, 1651900000000"`,
			`"{{time}}, {{time}}, {{time}}; 2024-07-07, {{time}}, 1651900000000"`},
		{`{"createdAt":1751900000500,"count":1751900000500}`, `{"createdAt":"{{time}}","count":1751900000500}`},
		{`"\ud800 /srv/a"`, `"\ud800 {{cwd}}"`},
	}
	for _, tt := range tests {
		got := string(v.rewrite([]byte(tt.in), func(k volatileKind, _ string) string { return volatileNames[k] }))
		if got != tt.want {
			t.Errorf("%s became %s, want %s", tt.in, got, tt.want)
		}
	}
}

func TestBijection(t *testing.T) {
	m := newBijection()
	for _, tt := range []struct {
		a, b string
		want bool
	}{{"a", "x", true}, {"a", "x", true}, {"a", "y", false}, {"b", "x", false}, {"b", "y", true}, {"x", "a", true}} {
		if got := m.match(tt.a, tt.b); got != tt.want {
			t.Errorf("match(%s, %s) = %t, want %t", tt.a, tt.b, got, tt.want)
		}
	}
}
