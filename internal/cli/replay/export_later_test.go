package replay_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/pkg/invariants"
)

// lateLog is a log of a later generation out of lines of type, data and what else
// the envelope holds.
func lateLog(gen int, seeded bool, lines ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"type":"session","version":%d,"id":"s","createdAt":1,"cwd":"/w",%s"delegationDepth":0}`+"\n", gen,
		map[bool]string{true: "", false: fmt.Sprintf(`"isSeeded":%v,`, seeded)}[gen == 1])
	for i, l := range lines {
		typ, rest, _ := strings.Cut(l, " ")
		data, more, _ := strings.Cut(rest, "\t")
		fmt.Fprintf(&b, `{"type":%q,"seq":%d,"time":%d,"data":%s%s}`+"\n", typ, i, 10+i, data, more)
	}
	return b.String()
}

var (
	lateStart = []string{
		`turn/start {"turn":1}`,
		`step/start {"turn":1,"step":1}`,
		`user/message {"content":[{"type":"text","text":"q"}],"source":{"kind":"user"},"role":"user","id":"u1"}` + "\t" + `,"surfaceOp":"append"`,
		`request/header {"header":{"config":{"provider":"p","model":"m"}},"reason":"initial"}`,
	}
	lateAnswer = `assistant/message {"turn":1,"step":1,"message":{"role":"assistant","content":[{"type":"tool-call","id":"c1","name":"x","arguments":"{}"}],"source":{"kind":"model","provider":"p","model":"m"},"id":"a1"},"stream":[]}` + "\t" + `,"surfaceOp":"append"`
	lateCall   = `tool/call {"turn":1,"step":1,"callId":"c1","name":"x","arguments":"{}"}`
)

func with(lines []string, more ...string) []string {
	return append(append([]string(nil), lines...), more...)
}

// What closes a turn of generation 4 stands behind the last event as that
// generation appends it; where that is not known the turn stays open, and why is
// said.
func TestRepairLater(t *testing.T) {
	const hint = "dsh-replay: hint: the log ends inside a turn, which stays open: "
	for _, tt := range []struct {
		name, log string
		args      []string
		added     string // behind the log
		errs      string
		verdict   invariants.Verdict
	}{
		{name: "a call that was recorded", log: lateLog(4, false, with(lateStart, lateAnswer, lateCall)...),
			args: []string{"--recovery-text-started", "lost"},
			added: `{"type":"tool/result","seq":6,"time":15,"data":{"turn":1,"step":1,"message":{"id":"interrupted-tool-result-c1-6","role":"tool","toolCallId":"c1","isError":true,"source":{"kind":"tool","callId":"c1"},"content":[{"type":"text","text":"lost"}]},"error":{"name":"ToolOutcomeUnknownError","code":"TOOL_OUTCOME_UNKNOWN"}},"sourceEventSeqs":[5],"surfaceOp":"append"}
{"type":"step/end","seq":7,"time":15,"data":{"turn":1,"step":1}}
{"type":"turn/end","seq":8,"time":15,"data":{"turn":1,"reason":{"kind":"interrupted"}}}
`, verdict: invariants.OK},
		{name: "no call", log: lateLog(4, false, lateStart...),
			added: `{"type":"step/end","seq":4,"time":13,"data":{"turn":1,"step":1}}
{"type":"turn/end","seq":5,"time":13,"data":{"turn":1,"reason":{"kind":"interrupted"}}}
`, verdict: invariants.OK},
		{name: "between steps", log: lateLog(4, false, `turn/start {"turn":1}`),
			added: `{"type":"turn/end","seq":1,"time":10,"data":{"turn":1,"reason":{"kind":"interrupted"}}}
`, verdict: invariants.OK},
		{name: "a call that was not recorded", log: lateLog(4, false, with(lateStart, lateAnswer)...), args: []string{"--recovery-text", "lost"},
			errs: hint + `call "c1" was never recorded as started, and the harness refuses a log in which the result of such a call is in other words than its own` + "\n" +
				"dsh-replay: hint: give the harness's words with --recovery-text-not-started TEXT\n", verdict: invariants.Open},
		{name: "a compaction", log: lateLog(4, false, with(lateStart, `compaction/start {"compactionId":"k","turn":1}`)...),
			errs: hint + "a compaction is open in it, which only the process that goes on with the session gives up, with a session/end-seed of its own time\n" +
				"dsh-replay: hint: a harness that opens the session closes both\n", verdict: invariants.Open},
		{name: "inherited", log: lateLog(4, true, with(lateStart, `session/end-seed {"inherited":true}`)...),
			errs: hint + "it began at seq 0, before the inherited events end at seq 4, and whether it counts as interrupted or as forked is not known\n", verdict: invariants.Open},
		{name: "generation 3", log: lateLog(3, false, `turn/start {"turn":1}`),
			errs: hint + "which bytes the builds of generation 3 add to close a turn is not known, and nothing is guessed\n", verdict: invariants.Open},
		{name: "generation 2", log: lateLog(2, false, `turn/start {"turn":1}`),
			errs: hint + "which bytes the builds of generation 2 add to close a turn is not known, and nothing is guessed\n", verdict: invariants.Open},
		{name: "generation 1", log: lateLog(1, false, `turn/start {"turn":1}`),
			errs: hint + "no harness goes on with a log of generation 1, so nothing is known to close a turn of it\n" +
				"dsh-replay: hint: repair the log of generation 0 that it was made from\n", verdict: invariants.Open},
	} {
		for _, tail := range []string{"", `{"type":"step/en`} {
			dir := scratch(t)
			log, out := filepath.Join(dir, "in.jsonl"), filepath.Join(dir, "out.jsonl")
			if err := os.WriteFile(log, []byte(tt.log+tail), 0o600); err != nil {
				t.Fatal(err)
			}
			args := append([]string{"export", "--to", "plain", "-o", out, "--repair"}, tt.args...)
			code, _, errs := execute(append(args, log)...)
			if code != 0 || !strings.HasSuffix(errs, tt.errs) || tt.errs == "" && strings.Contains(errs, "stays open") {
				t.Errorf("%s, tail %q: code %d, stderr %q, want %q", tt.name, tail, code, errs, tt.errs)
				continue
			}
			if got := string(read(t, out)); got != tt.log+tt.added {
				t.Errorf("%s, tail %q: wrote\n%swant\n%s", tt.name, tail, got, tt.log+tt.added)
			}
			if v, res := verdict(t, out); v != tt.verdict {
				t.Errorf("%s: what was written is %s, want %s: %v", tt.name, v, tt.verdict, findings(res))
			}
			js := filepath.Join(dir, "json.jsonl")
			_, text, _ := execute(append(append([]string{"export", "--to", "plain", "-o", js, "--repair", "--format", "json"}, tt.args...), log)...)
			var r struct{ Open string }
			if err := json.Unmarshal([]byte(text), &r); err != nil || (r.Open != "") != (tt.errs != "") || !strings.Contains(tt.errs, r.Open) {
				t.Errorf("%s: open is %q, %v", tt.name, r.Open, err)
			}
		}
	}
}

// A tail that generation 4 does not drop is not dropped here.
func TestRepairHardTail(t *testing.T) {
	const plugin = `{"type":"user/message","seq":1,"time":2,"data":{"content":[],"source":{"kind":"plugin","plugin":"x"},"role":"user","id":"u"},"surfaceOp":"append"}` + "\n"
	for gen, want := range map[int]string{
		3: "",
		4: `:4: the tail that a repair drops holds what the harness refuses a log for, wherever it stands: source kind is "plugin", which ended with generation 3: expected the name of the producer: nothing is exported`,
	} {
		dir := scratch(t)
		log, out := filepath.Join(dir, "in.jsonl"), filepath.Join(dir, "out.jsonl")
		if err := os.WriteFile(log, []byte(lateLog(gen, false, `plan/mode {"active":true}`)+"{\"type\":\n"+plugin), 0o600); err != nil {
			t.Fatal(err)
		}
		code, _, errs := execute("export", "--to", "plain", "-o", out, "--repair", log)
		if want == "" && code != 0 || want != "" && (code != 1 || !strings.Contains(errs, log+want)) {
			t.Errorf("generation %d: code %d, stderr %q, want %q", gen, code, errs, want)
		}
		if _, err := os.Stat(out); (err == nil) != (want == "") {
			t.Errorf("generation %d: written: %v", gen, err == nil)
		}
	}
}

// The example log of generation 4 ends a turn after a crash. Cut before that, it is
// repaired to the same bytes.
func TestRepairExample(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	whole := read(t, filepath.Join(dir, "migrated", "examples", "v4.jsonl"))
	lines := bytes.SplitAfter(whole, []byte("\n"))
	at := 0
	for i, l := range lines {
		if bytes.Contains(l, []byte("interrupted-tool-result-")) {
			at = i
		}
	}
	if at == 0 {
		t.Fatal("the example has no repair")
	}
	var e struct {
		Data struct {
			Message struct{ Content []struct{ Text string } }
		}
	}
	if err := json.Unmarshal(lines[at], &e); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(scratch(t), "in.jsonl")
	if err := os.WriteFile(log, bytes.Join(lines[:at], nil), 0o600); err != nil {
		t.Fatal(err)
	}
	out := export(t, "plain", log, "--repair", "--recovery-text-not-started", e.Data.Message.Content[0].Text)
	if got, want := read(t, out), bytes.Join(lines[:at+3], nil); !bytes.Equal(got, want) {
		t.Errorf("repaired it is\n%s\nwant\n%s", got, want)
	}
	if v, res := verdict(t, out); v != invariants.OK {
		t.Errorf("repaired it is %s: %v", v, findings(res))
	}
	if zst := export(t, "zstd", log, "--repair", "--recovery-text-not-started", e.Data.Message.Content[0].Text); !bytes.Equal(events(t, zst), events(t, out)) {
		t.Error("repaired as zstd it holds other events")
	}
}
