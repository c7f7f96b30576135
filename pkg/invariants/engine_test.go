package invariants

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/load"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

const header = `{"type":"session","version":0,"id":"s","createdAt":1,"cwd":"/w","delegationDepth":0}` + "\n"

// eventLines writes events as TYPE DATA, numbered from seq 0; what stands behind
// a tab is added to the envelope.
func eventLines(events ...string) string {
	var b strings.Builder
	for i, e := range events {
		typ, data, _ := strings.Cut(e, " ")
		data, more, _ := strings.Cut(data, "\t")
		fmt.Fprintf(&b, `{"type":%q,"seq":%d,"time":%d,"data":%s%s}`+"\n", typ, i, 10+i, data, more)
	}
	return b.String()
}

// small is the smallest log with a request.
var small = header + eventLines(
	`turn/start {"turn":1}`,
	`step/start {"turn":1,"step":1}`,
	`user/message {"content":[{"type":"text","text":"q"}],"source":{"kind":"user"},"role":"user","id":"u"}`+"\t"+`,"surfaceOp":"append"`,
	`request/header {"header":{"config":{"provider":"p","model":"m"}},"reason":"initial"}`,
	`assistant/chunk {"turn":1,"step":1,"chunk":{"type":"finish","reason":{"kind":"stop"}}}`,
	`assistant/message {"turn":1,"step":1,"message":{"role":"assistant","content":[],"source":{"kind":"model","provider":"p","model":"m"},"id":"a"}}`+"\t"+`,"sourceEventSeqs":[4],"surfaceOp":"append"`,
	`step/end {"turn":1,"step":1}`,
	`turn/end {"turn":1,"reason":{"kind":"completed"}}`,
)

func TestResult(t *testing.T) {
	var requests []string
	res := judge(t, []byte(small), Options{Request: func(r *fold.Request) { requests = append(requests, string(r.AppendBody(nil))) }})
	want := &Result{
		Path: "log.jsonl", Session: "s", Container: logfmt.Plain, Mode: fold.SurfaceMode, Events: 8,
		Requests: RequestCounts{Exact: 1}, Verdict: OK, Class: logfmt.Intact,
		Load:  &load.Outcome{Kept: 8, Before: load.Extent{Events: 8, Last: 7, Turns: 1, LastTurn: 1}, Behind: load.Extent{First: -1, Last: -1, LastTurn: -1}},
		Eras:  []fold.Eras{{Min: fold.E10, Max: fold.E13}},
		Usage: Usage{Silent: 1}, Notes: 1,
		Findings: []*Finding{{
			Rule: "ASST-EMPTY", Pos: logfmt.Position{Line: 7, Offset: 613, Length: 223, Frame: -1, FrameAt: -1, Row: -1, Member: -1},
			Seq: 5, Turn: 1, Step: 1, Message: "the answer has no content, and gives no message",
		}},
	}
	body := []string{`{"provider":"p","model":"m","messages":[{"content":[{"type":"text","text":"q"}],"source":{"kind":"user"},"role":"user","id":"u"}],"sessionId":"s"}`}
	sum := sha256.Sum256([]byte(body[0]))
	want.RequestsSHA256 = fmt.Sprintf("%x", sha256.Sum256(sum[:]))
	if d := cmp.Diff(want, res, cmpopts.IgnoreUnexported(Finding{})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := cmp.Diff(body, requests); d != "" {
		t.Errorf("requests (-want +got):\n%s", d)
	}
}

// The recorded sessions that ship with the repository are without errors.
func TestSound(t *testing.T) {
	logs, err := filepath.Glob(filepath.Join(corpus.Root(t), "goldens", "sound", "*", "session*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	warnings := map[string]string{}
	for _, log := range logs {
		n++
		name := filepath.Base(filepath.Dir(log)) + "/" + filepath.Base(log)
		warnings[name] = warningLines(t, name, judgeFile(t, log))
	}
	checkWarnings(t, "sound-warnings.golden", warnings)
	if n == 0 {
		t.Fatal("no sound logs in goldens")
	}
	t.Logf("%d sound logs", n)
}

// A log full of one defect fills neither memory nor the result.
func TestLimit(t *testing.T) {
	const n = 5000
	var b strings.Builder
	b.WriteString(header)
	for i := range n {
		fmt.Fprintf(&b, `{"type":"step/end","seq":%d,"time":1,"data":{"turn":1,"step":1}}`+"\n", i)
	}
	res := judge(t, []byte(b.String()), Options{MaxPerRule: 7})
	if len(res.Findings) != 7 {
		t.Errorf("%d findings kept, want 7", len(res.Findings))
	}
	if d := cmp.Diff([]Omitted{{"STEP-CLOSE", n - 7}}, res.Omitted); d != "" {
		t.Errorf("omitted (-want +got):\n%s", d)
	}
	if res.Errors != n || res.Verdict != Violations {
		t.Errorf("%d errors and %s, want %d and violations", res.Errors, res.Verdict, n)
	}
}

// However few findings are listed, the verdict and the counts are those of all,
// and the gravest is among the listed.
func TestLimitChangesNothing(t *testing.T) {
	const n = 120
	var turns strings.Builder
	turns.WriteString(header)
	seq := 0
	event := func(typ, data, more string) {
		fmt.Fprintf(&turns, `{"type":%q,"seq":%d,"time":1,"data":%s%s}`+"\n", typ, seq, data, more)
		seq++
	}
	for i := 1; i <= n; i++ {
		event("turn/start", fmt.Sprintf(`{"turn":%d}`, i), "")
		event("turn/end", fmt.Sprintf(`{"turn":%d,"reason":{"kind":"sunk"}}`, i), "")
	}
	odd := turns.String()
	event("turn/start", fmt.Sprintf(`{"turn":%d}`, n+1), "")
	event("turn/end", fmt.Sprintf(`{"turn":%d,"reason":{"kind":"completed","extra":1}}`, n+1), "")
	wrong := turns.String()

	type counts struct {
		Verdict                 Verdict
		Errors, Warnings, Notes int64
		Listed                  int
		Worst                   Severity
		Omitted                 []Omitted
	}
	only := func(id string) bool { return id == "EVT-SHAPE" }
	for _, tt := range []struct {
		name  string
		log   string
		limit int
		want  counts
	}{
		{"warnings, all listed", odd, 500, counts{Warn, 0, n, 0, n, Warning, nil}},
		{"warnings", odd, 7, counts{Warn, 0, n, 0, 7, Warning, []Omitted{{"EVT-SHAPE", n - 7}}}},
		{"an error behind them, all listed", wrong, 500, counts{Violations, 1, n, 0, n + 1, Error, nil}},
		{"an error behind them", wrong, 7, counts{Violations, 1, n, 0, 7, Error, []Omitted{{"EVT-SHAPE", n - 6}}}},
		{"an error behind them, one listed", wrong, 1, counts{Violations, 1, n, 0, 1, Error, []Omitted{{"EVT-SHAPE", n}}}},
		// Cut off at the error: the harness never sees it.
		{"an error behind damage", odd + "{\n" + wrong[len(odd):strings.LastIndex(wrong[:len(wrong)-1], "\n")+1] +
			fmt.Sprintf(`{"type":"step/start","seq":%d,"time":1,"data":7}`+"\n", 2*n+1), 7,
			counts{Torn, 0, n + 1, 1, 8, Warning, []Omitted{{"EVT-SHAPE", n - 6}}}},
	} {
		res := judge(t, []byte(tt.log), Options{MaxPerRule: tt.limit, Rules: only})
		got := counts{res.Verdict, res.Errors, res.Warnings, res.Notes, len(res.Findings), Note, res.Omitted}
		for _, f := range res.Findings {
			got.Worst = max(got.Worst, f.Severity)
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
}

// What stands behind the point where a torn log is cut is not judged, be it of a
// type that nobody knows or the header of another log.
func TestBehindTheCut(t *testing.T) {
	const turn = `{"type":"turn/start","seq":0,"time":1,"data":{"turn":1}}` + "\n" +
		`{"type":"turn/end","seq":1,"time":1,"data":{"turn":1,"reason":{"kind":"completed"}}}` + "\n"
	for _, tt := range []struct {
		name, tail string
		want       Verdict
		lines      []string
	}{
		{"unknown type", "{\n" + `{"type":"gull/seen","seq":2,"time":1,"data":{}}` + "\n", Torn,
			[]string{"LINE-JSON warning", "LOG-TYPE note"}},
		{"second header", header, Torn, []string{"LOG-SEQ warning"}},
		{"second log", header + turn, Corrupt, []string{"LOG-SEQ error", "LOG-WRITERS warning", "LOG-SEQ error"}},
	} {
		res := judge(t, []byte(header+turn+tt.tail), Options{Rules: func(id string) bool { return id != ruleRefused }})
		var lines []string
		for _, f := range res.Findings {
			lines = append(lines, f.Rule+" "+f.Severity.String())
		}
		if d := cmp.Diff(tt.lines, lines); d != "" || res.Verdict != tt.want {
			t.Errorf("%s: %s, want %s (-want +got):\n%s", tt.name, res.Verdict, tt.want, d)
		}
	}
}

// A minus zero is one to a reader of the header, and no writer's.
func TestHeaderMinusZero(t *testing.T) {
	const head = `{"type":"session","version":0,"id":"s","createdAt":-0,"cwd":"/w","delegationDepth":0}` + "\n"
	const seeded = `{"type":"session/end-seed","seq":0,"time":1,"data":{}}` + "\n"
	for _, tt := range []struct {
		log  string
		want Verdict
		msgs []string
	}{
		{head, Warn, []string{"header holds a minus zero, which no writer can store"}},
		{head + seeded, Violations, []string{
			"header createdAt is -0, expected milliseconds as a whole number from 0, which builds since 07-24 21:14 ask for",
			"header holds a minus zero, which no writer can store",
		}},
	} {
		res := judge(t, []byte(tt.log), Options{Rules: func(id string) bool { return id != ruleRefused }})
		var msgs []string
		for _, f := range res.Findings {
			msgs = append(msgs, f.Message)
		}
		if d := cmp.Diff(tt.msgs, msgs); d != "" || res.Verdict != tt.want {
			t.Errorf("%s: %s, want %s (-want +got):\n%s", tt.log, res.Verdict, tt.want, d)
		}
	}
}

// As many types that nobody knows as there are events.
func TestManyTypes(t *testing.T) {
	var b strings.Builder
	b.WriteString(header)
	for i := range 3000 {
		fmt.Fprintf(&b, `{"type":"x/%d","seq":%d,"time":1,"data":{}}`+"\n", i, i)
	}
	log, err := logfmt.NewReader(strings.NewReader(b.String()), "x", logfmt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := newContext(log, Options{MaxPerRule: 1})
	for e, d := range log.Events() {
		if d != nil {
			t.Fatal(d)
		}
		c.event(e)
	}
	if len(c.byType) != 0 {
		t.Errorf("%d unknown types are remembered", len(c.byType))
	}
	res := c.conclude()
	c.settle(res)
	if res.Verdict != Unsupported || res.Errors != 3000 {
		t.Errorf("%s with %d errors, want unsupported with 3000", res.Verdict, res.Errors)
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	log, err := logfmt.NewReader(strings.NewReader(small), "x", logfmt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := Check(ctx, log, Options{}); !errors.Is(err, context.Canceled) || res != nil {
		t.Errorf("Check = %v, %v; want the context's error", res, err)
	}
}

func TestUnreadable(t *testing.T) {
	broken := iotest.ErrReader(errors.New("the disk is gone"))
	// Long enough that the beginning was read without trouble.
	chunk := strings.Repeat(`{"type":"session/end-seed","seq":0,"time":1,"data":{}}`+"\n", 5000)
	log, err := logfmt.NewReader(io.MultiReader(strings.NewReader(header+chunk), broken), "x", logfmt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	res, err := Check(context.Background(), log, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if res.Verdict != Unreadable || len(res.Findings) == 0 || !slices.ContainsFunc(res.Findings, func(f *Finding) bool {
		return f.Rule == "LOG-READ" && f.Severity == Error && strings.Contains(f.Message, "the disk is gone")
	}) {
		t.Errorf("got:\n%s", verdictLines(res))
	}
}

// What is lost is one finding; what depends on it is none.
func TestLostEvents(t *testing.T) {
	all := strings.SplitAfter(small, "\n")
	for i := 1; i < len(all)-1; i++ {
		cut := strings.Join(slices.Delete(slices.Clone(all), i, i+1), "")
		res := judge(t, []byte(cut), Options{})
		var rest []string
		for _, l := range lines(res, false) {
			if !strings.HasPrefix(l, "LOG-SEQ") {
				rest = append(rest, l)
			}
		}
		// Without its last event the log is whole and open.
		want := Corrupt
		if i == len(all)-2 {
			want = Open
		}
		if res.Verdict != want || len(rest) > 0 {
			t.Errorf("without line %d: want %s and LOG-SEQ alone, got:\n%s", i+1, want, verdictLines(res))
		}
		// A line that does not parse in its place is no different.
		broken := slices.Clone(all)
		broken[i] = "{\"type\":\n"
		res = judge(t, []byte(strings.Join(broken, "")), Options{})
		want = Corrupt
		if i == len(all)-2 {
			want = Torn
		}
		if got := lines(res, false); res.Verdict != want || len(got) != 1 || !strings.HasPrefix(got[0], "LINE-JSON") {
			t.Errorf("with line %d broken: want %s and LINE-JSON alone, got:\n%s", i+1, want, verdictLines(res))
		}
	}
}

// Text from the log never reaches a message as it is.
func TestHostileText(t *testing.T) {
	evil := `\u001b[31m\u0007\r\n\u202eX`
	log := header + eventLines(
		`turn/start {"turn":1}`,
		`step/start {"turn":"`+evil+`","step":{"`+evil+`":1}}`,
		evil+`/x {}`,
		`turn/end {"turn":1,"reason":{"kind":"`+evil+`"}}`,
		`tool/result {"turn":1,"step":1,"callId":"`+evil+`","content":[],"isError":false}`+"\t"+`,"surfaceOp":"`+evil+`","`+evil+`":1`,
	)
	res := judge(t, []byte(log), Options{})
	if len(res.Findings) < 5 {
		t.Fatalf("got:\n%s", verdictLines(res))
	}
	for _, f := range res.Findings {
		for _, s := range []string{f.Message, f.Hint, f.Path} {
			if strings.ContainsAny(s, "\x1b\x07\r\n\u202e") {
				t.Errorf("%s: %q", f.Rule, s)
			}
		}
	}
}

// One finding for a packed row, whatever the number of its members.
func TestPackedRow(t *testing.T) {
	row := `{"type":"text-chunks","seq0":2,"time0":12,"data":{"turn":1,"step":2,"index":0,"dt":[1,1],"texts":["a","b","c"]}}` + "\n"
	log := header + eventLines(`turn/start {"turn":1}`, `step/start {"turn":1,"step":1}`) + row +
		`{"type":"step/end","seq":5,"time":15,"data":{"turn":1,"step":1}}` + "\n" +
		`{"type":"turn/end","seq":6,"time":16,"data":{"turn":1,"reason":{"kind":"completed"}}}` + "\n"
	res := judge(t, []byte(log), Options{Rules: func(id string) bool { return id == "STEP-SCOPE" }})
	if len(res.Findings) != 1 || res.Findings[0].More != 2 || res.Findings[0].Seq != 2 || res.Findings[0].Pos.Line != 4 {
		t.Errorf("got:\n%s", verdictLines(res))
	}
}

func TestCompare(t *testing.T) {
	const body = `{"provider":"p","model":"m","messages":[{"content":[{"type":"text","text":"q"}],"source":{"kind":"user"},"role":"user","id":"u"}],"sessionId":"s"}`
	rec := func(turn int, body string) string {
		return fmt.Sprintf(`{"turn":%d,"step":1,"request":%s}`+"\n", turn, body)
	}
	for _, c := range []struct {
		name, recording string
		want            Comparison
		finding         string
	}{
		{"same", rec(1, body), Comparison{Recorded: 1, Matched: 1}, ""},
		{"no place", `{"request":` + body + "}\n", Comparison{Recorded: 1, Matched: 1}, ""},
		{"no line feed", strings.TrimSuffix(rec(1, body), "\n"), Comparison{Recorded: 1, Matched: 1}, ""},
		{"key order", rec(1, strings.Replace(body, `"provider":"p","model":"m"`, `"model":"m","provider":"p"`, 1)),
			Comparison{Recorded: 1, KeyOrder: 1},
			`REQ-KEYORDER warning 1.1: recorded request of turn 1 step 1 on line 1 has its config keys in the order model, provider, the log gives provider, model`},
		{"text", rec(1, strings.Replace(body, `"q"`, `"quit"`, 1)), Comparison{Recorded: 1, Differing: 1},
			`REQ-BYTES error 1.1: request of turn 1 step 1 differs from the recorded request of turn 1 step 1 on line 1 at messages[0].content[0].text, byte 76: recorded "quit", the log gives "q"`},
		{"message more", rec(1, strings.Replace(body, `"messages":[`, `"messages":[1,`, 1)), Comparison{Recorded: 1, Differing: 1},
			`REQ-BYTES error 1.1: request of turn 1 step 1 differs from the recorded request of turn 1 step 1 on line 1 at messages[0], byte 40: recorded 1, the log gives an object with keys content, source, role, id`},
		{"member more", rec(1, strings.Replace(body, `,"sessionId"`, `,"system":"S","sessionId"`, 1)), Comparison{Recorded: 1, Differing: 1},
			`REQ-BYTES error 1.1: request of turn 1 step 1 differs from the recorded request of turn 1 step 1 on line 1 at system, byte 132: recorded "S", the log gives absent`},
		{"empty", "", Comparison{Missing: 1}, `REQ-MISSING error 1.1: request of turn 1 step 1 is in the log and not in the recording`},
		{"extra", rec(1, body) + rec(2, strings.Replace(body, `"q"`, `"r"`, 1)), Comparison{Recorded: 2, Matched: 1, Extra: 1},
			`REQ-EXTRA error 2.1: recorded request of turn 2 step 1 on line 2 is not in the log`},
		{"purpose", rec(1, strings.Replace(body, `}`, `}`, 1)[:len(body)-1]+`,"purpose":"compaction"}`) + rec(1, body),
			Comparison{Recorded: 2, Matched: 1, Auxiliary: 1},
			`REQ-AUX note 1.1: recorded request of turn 1 step 1 on line 1 was not made by the loop: its purpose is "compaction"`},
		{"a loop request that looks like a call on the side", rec(1, body) +
			`{"turn":2,"step":1,"request":{"provider":"p","model":"m","maxTokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"q"}]}],"system":"S","sessionId":"s"}}` + "\n",
			Comparison{Recorded: 2, Matched: 1, Extra: 1},
			`REQ-EXTRA error 2.1: recorded request of turn 2 step 1 on line 2 is not in the log`},
		{"a summary of July", `{"turn":1,"step":1,"request":{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"Summarize this conversation history:\n\nUser: q\n\nSummary:"}]}],"system":"S","maxTokens":9,"sessionId":"s"}}` + "\n" + rec(1, body),
			Comparison{Recorded: 2, Matched: 1, Auxiliary: 1},
			`REQ-AUX note 1.1: recorded request of turn 1 step 1 on line 1 was not made by the loop: it asks for a summary of the conversation`},
		{"twice", rec(1, body) + rec(1, body), Comparison{Recorded: 2, Matched: 1, Extra: 1},
			`REQ-EXTRA error 1.1: recorded request of turn 1 step 1 on line 2 stands where the log has none like it: it equals the request of turn 1 step 1`},
		{"closest", rec(2, body[:len(body)-2]+`t"}`), Comparison{Recorded: 1, Missing: 1, Extra: 1},
			`REQ-MISSING error 1.1: request of turn 1 step 1 is in the log and not in the recording; the closest is the recorded request of turn 2 step 1 on line 1, alike for the first 144 of 147 bytes
REQ-EXTRA error 2.1: recorded request of turn 2 step 1 on line 1 is not in the log`},
		{"another turn", rec(2, body), Comparison{Recorded: 1, Misplaced: 1},
			`REQ-LABEL error 1.1: recorded request of turn 2 step 1 on line 1 equals the request of turn 1 step 1 and is recorded under another place: turn 2 where the log gives 1`},
		{"another turn and step", `{"turn":0,"step":7,"request":` + body + "}\n", Comparison{Recorded: 1, Misplaced: 1},
			`REQ-LABEL error 1.1: recorded request of turn 0 step 7 on line 1 equals the request of turn 1 step 1 and is recorded under another place: turn 0 where the log gives 1, step 7 where the log gives 1`},
		{"another step alone", `{"turn":null,"step":2,"request":` + body + "}\n", Comparison{Recorded: 1, Misplaced: 1},
			`REQ-LABEL error 1.1: recorded request of step 2 on line 1 equals the request of turn 1 step 1 and is recorded under another place: step 2 where the log gives 1`},
		{"the turn alone", `{"turn":1,"request":` + body + "}\n", Comparison{Recorded: 1, Matched: 1}, ""},
		{"another turn and key order", rec(2, strings.Replace(body, `"provider":"p","model":"m"`, `"model":"m","provider":"p"`, 1)),
			Comparison{Recorded: 1, Misplaced: 1},
			`REQ-LABEL error 1.1: recorded request of turn 2 step 1 on line 1 equals the request of turn 1 step 1 and is recorded under another place: turn 2 where the log gives 1
REQ-KEYORDER warning 1.1: recorded request of turn 2 step 1 on line 1 has its config keys in the order model, provider, the log gives provider, model`},
		{"a turn that is none", `{"turn":"1","step":1,"request":` + body + "}\n" + rec(1, body), Comparison{Recorded: 2, Matched: 1, Extra: 1},
			`REQ-RECORD error -1.-1: recording line 1: turn is "1", expected a whole number`},
		{"garbage", "{\n" + rec(1, body), Comparison{Recorded: 2, Matched: 1, Extra: 1},
			`REQ-RECORD error -1.-1: recording line 1: not valid JSON: offset 1: expected key or '}', found end of input`},
		{"no body", `{"turn":1}` + "\n" + rec(1, body), Comparison{Recorded: 2, Matched: 1, Extra: 1},
			`REQ-RECORD error -1.-1: recording line 1: request is absent, expected an object`},
	} {
		t.Run(c.name, func(t *testing.T) {
			log, err := logfmt.NewReader(strings.NewReader(small), "x", logfmt.Options{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := CompareRequests(fold.Requests(log, fold.Options{}), strings.NewReader(c.recording))
			if err != nil {
				t.Fatal(err)
			}
			var found []string
			for _, f := range got.Findings {
				found = append(found, fmt.Sprintf("%s %s %d.%d: %s", f.Rule, f.Severity, f.Turn, f.Step, f.Message))
			}
			slices.SortStableFunc(found, func(a, b string) int { return strings.Compare(b[4:5], a[4:5]) })
			if d := cmp.Diff(c.finding, strings.Join(found, "\n")); d != "" {
				t.Errorf("findings (-want +got):\n%s", d)
			}
			got.Findings = nil
			if d := cmp.Diff(&c.want, got); d != "" {
				t.Errorf("counts (-want +got):\n%s", d)
			}
		})
	}
}

// Requests that are sent again are the same twice. What the recording calls them
// tells which of them it lacks.
func TestCompareAgain(t *testing.T) {
	for _, c := range []struct {
		log, recording string // steps of turn 1, the letter for the body; small for candidates
		want           string // findings, in order of the log
	}{
		{"1A 2A 3B", "1A 2A 3B", ""},
		{"1A 2A 3B", "2A 3B", "REQ-MISSING 1"},
		{"1A 2A 3B", "1A 3B", "REQ-MISSING 2"},
		{"1a 2A 3B", "2A 3B", ""},
		{"1A 2A 3B", "2A 2A 3B", "REQ-LABEL 1"},
		{"1A 2A 3B", "1A 1A 3B", "REQ-LABEL 2"},
		{"1A 2A", "1A 2A 3A", "REQ-EXTRA 3"},
		{"1A 2B 3C 4D 5E 6F 7G 8H 9I", "2A 3B 4C 5D 6E 7F 8G 9H 10I", "REQ-LABEL 1, REQ-LABEL 2, REQ-LABEL 3, REQ-LABEL 4, REQ-LABEL 5, REQ-LABEL 6, REQ-LABEL 7, REQ-LABEL 8, REQ-LABEL 9"},
		{"1A 2A 3A 4A 5A 6A 7A 8A 9A 10A 11A 12B", "2A 3A 4A 5A 6A 7A 8A 9A 10A 11A 12B", "REQ-MISSING 1"},
		{"1A 2A 3A 4A 5A 6A 7A 8A 9A 10A 11A 12B", "1A 2A 3A 4A 5A 6A 7A 8A 9A 10A 12B", "REQ-MISSING 11"},
	} {
		body := func(s string) (step int64, b []byte) {
			fmt.Sscanf(s[:len(s)-1], "%d", &step)
			return step, fmt.Appendf(nil, `{"model":"m","messages":["%s"]}`, strings.ToUpper(s[len(s)-1:]))
		}
		var rec strings.Builder
		for _, s := range strings.Fields(c.recording) {
			step, b := body(s)
			fmt.Fprintf(&rec, `{"turn":1,"step":%d,"request":%s}`+"\n", step, b)
		}
		cmp := NewComparer(strings.NewReader(rec.String()))
		for _, s := range strings.Fields(c.log) {
			step, b := body(s)
			cmp.got = append(cmp.got, &sent{turn: 1, step: step, attempt: 1, candidate: s[len(s)-1] >= 'a',
				place: Place{Seq: step, Turn: 1, Step: step}, body: b})
			for len(cmp.got) > window {
				cmp.settle()
			}
		}
		res, err := cmp.End()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		slices.SortFunc(res.Findings, func(a, b *Finding) int { return int(a.Step - b.Step) })
		for _, f := range res.Findings {
			got = append(got, fmt.Sprintf("%s %d", f.Rule, f.Step))
		}
		if got := strings.Join(got, ", "); got != c.want {
			t.Errorf("log %s, recording %s: %s, want %s", c.log, c.recording, got, c.want)
		}
	}
}

func TestCompareReadError(t *testing.T) {
	log, err := logfmt.NewReader(strings.NewReader(small), "x", logfmt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = CompareRequests(fold.Requests(log, fold.Options{}), iotest.ErrReader(errors.New("gone")))
	if err == nil || err.Error() != "recording line 1: gone" {
		t.Errorf("error %v, want that of the reader", err)
	}
}

// A sound log damaged in one place has findings about the damage alone: nothing
// that depends on what was lost or misplaced is held against other events.
func TestOneDamage(t *testing.T) {
	logs, err := filepath.Glob(filepath.Join(corpus.Root(t), "goldens", "sound", "*", "session*.jsonl"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("%d sound logs, %v", len(logs), err)
	}
	damage := []struct {
		name string
		do   func(lines []string, i int) []string
	}{
		{"deleted", func(l []string, i int) []string { return slices.Delete(l, i, i+1) }},
		{"repeated", func(l []string, i int) []string { return slices.Insert(l, i, l[i]) }},
		{"swapped with the next", func(l []string, i int) []string { l[i], l[i+1] = l[i+1], l[i]; return l }},
		{"cut in half", func(l []string, i int) []string { l[i] = l[i][:len(l[i])/2] + "\n"; return l }},
		{"preceded by garbage", func(l []string, i int) []string { return slices.Insert(l, i, "garbage\n") }},
	}
	n := 0
	for k, log := range logs {
		built := map[string]bool{} // the warnings that the log was made to have
		for _, f := range judgeFile(t, log).Findings {
			built[f.Rule] = f.Severity == Warning
		}
		all := strings.SplitAfter(string(read(t, log)), "\n")
		for i := 1 + k%5; i < len(all)-2; i += 5 {
			for _, d := range damage {
				n++
				res := judge(t, []byte(strings.Join(d.do(slices.Clone(all), i), "")), Options{})
				damaged := false
				for _, f := range res.Findings {
					switch {
					case f.Rule == "LOG-SEQ" || f.Rule == "LINE-JSON":
						damaged = true
					case f.Severity != Note && !built[f.Rule]:
						t.Errorf("%s with line %d %s: line %d: %s: %s", log, i+1, d.name, f.Pos.Line, f.Rule, f.Message)
					}
				}
				if !damaged || res.Class == logfmt.Intact {
					t.Errorf("%s with line %d %s: %s:\n%s", log, i+1, d.name, res.Class, verdictLines(res))
				}
			}
		}
	}
	t.Logf("%d logs, %d damages", len(logs), n)
}

// That seq is no number is said once, by the reader, whatever rules run.
func TestSeqIsNoNumber(t *testing.T) {
	for _, c := range []struct{ member, message string }{
		{`"seq":"0",`, `seq is "0", expected 0`},
		{`"seq":-1,`, `seq is -1, expected 0`},
		{`"seq":0.5,`, `seq is 0.5, expected 0`},
		{`"seq":null,`, `seq is null, expected 0`},
		{``, `the event has no seq, expected seq 0`},
	} {
		for _, opts := range []Options{{}, {Rules: func(id string) bool { return id == "LOG-ENV" }}} {
			res := judge(t, []byte(header+`{"type":"plan/mode",`+c.member+`"time":1,"data":{"active":true}}`+"\n"), opts)
			var got []string
			for _, f := range res.Findings {
				if f.Severity != Note {
					got = append(got, fmt.Sprintf("%s %s line %d offset %d seq %d: %s", f.Rule, f.Severity, f.Pos.Line, f.Offset(), f.Seq, f.Message))
				}
			}
			want := []string{fmt.Sprintf("LOG-SEQ warning line 2 offset %d seq 0: %s", len(header), c.message)}
			if d := cmp.Diff(want, got); d != "" || res.Verdict != Torn {
				t.Errorf("%s: verdict %s (-want +got):\n%s", c.member, res.Verdict, d)
			}
		}
	}
}
