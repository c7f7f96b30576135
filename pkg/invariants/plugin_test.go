package invariants

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
)

// pluginRuleIDs are the rules of this test: what else is found is not its
// business.
func pluginRuleIDs() map[string]bool {
	ids := map[string]bool{}
	for _, rules := range [][]*Rule{compactionPluginRules, toolPluginRules, retryRules, sessionPluginRules, teamRules, goalRules, inboxRules} {
		for _, r := range rules {
			ids[r.ID] = true
		}
	}
	return ids
}

// script writes a log from lines of type, data and further members of the
// envelope. Seqs and times count up; a line that starts with + skips a seq.
func script(header string, lines []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"type":"session","version":0,"id":"s","createdAt":1,"cwd":"/w"%s}`+"\n", header)
	seq := 0
	for _, l := range lines {
		if strings.HasPrefix(l, "+") {
			seq++
			l = l[1:]
		}
		typ, rest, _ := strings.Cut(l, " ")
		end := jsjson.Skip([]byte(rest), 0)
		data, more := rest[:end], strings.TrimSpace(rest[end:])
		if more != "" {
			more = "," + more
		}
		fmt.Fprintf(&b, `{"type":%q,"seq":%d,"time":%d,"data":%s%s}`+"\n", typ, seq, 1000+seq, data, more)
		seq++
	}
	return b.String()
}

// beginnings of a log; what follows has the seqs from 4.
var beginnings = map[string][]string{
	"step":    inStep,
	"old":     inOldStep,
	"between": betweenTurns,
}

var (
	inStep = []string{
		`turn/start {"turn":1}`,
		`step/start {"turn":1,"step":1}`,
		`user/message {"content":[],"source":{"kind":"user"},"role":"user","id":"u1"} "surfaceOp":"append"`,
		`request/header {"header":{"config":{"provider":"p","model":"m"}},"reason":"initial"}`,
	}
	inOldStep = []string{
		`turn/start {"turn":1,"trigger":{"kind":"message","source":{"kind":"user"}}}`,
		`user/message {"content":[],"source":{"kind":"user"}} "surfaceOp":"append"`,
		`step/start {"turn":1,"step":1}`,
		`request/header {"header":{"config":{"model":"m"}},"reason":"initial"}`,
	}
	betweenTurns = []string{
		`turn/start {"turn":1}`,
		`step/start {"turn":1,"step":1}`,
		`step/end {"turn":1,"step":1}`,
		`turn/end {"turn":1,"reason":{"kind":"completed"}}`,
	}
)

// Each case of testdata/plugins.golden is what follows the beginning of a log,
// and, on lines that start with >, all that the rules about plugins find in it:
// seq, rule, severity and message. A line "begin NAME" chooses another beginning
// than that of an open step, "header MEMBERS" other members of the header record.
func TestPluginRules(t *testing.T) {
	golden := filepath.Join("testdata", "plugins.golden")
	ids, told := pluginRuleIDs(), map[string]bool{}
	n := 0
	var out strings.Builder
	for _, block := range strings.Split(string(read(t, golden)), "== ")[1:] {
		n++
		name, body, _ := strings.Cut(block, "\n")
		begin, header := inStep, `,"delegationDepth":0`
		var keep, events, want, got []string
		for _, l := range strings.Split(strings.TrimSpace(body), "\n") {
			key, rest, _ := strings.Cut(l, " ")
			switch key {
			case ">":
				want = append(want, rest)
				continue
			case "begin":
				if begin = beginnings[rest]; begin == nil && rest != "none" {
					t.Fatalf("%s: no beginning %s", name, rest)
				}
				if rest == "old" {
					header = "" // the member came later
				}
			case "header":
				header = "," + rest
			default:
				events = append(events, l)
			}
			keep = append(keep, l)
		}
		t.Run(name, func(t *testing.T) {
			res := judge(t, []byte(script(header, slices.Concat(begin, events))), Options{})
			for _, f := range res.Findings {
				switch {
				case ids[f.Rule]:
					told[f.Rule] = true
					got = append(got, fmt.Sprintf("%d %s %s: %s", f.Seq, f.Rule, f.Severity, f.Message))
				case f.Rule == "EVT-SHAPE" || f.Class != "" && !strings.Contains(name, "lost"):
					t.Errorf("line %d: %s: %s", f.Pos.Line, f.Rule, f.Message)
				}
			}
			if d := cmp.Diff(want, got); d != "" && !*update {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
		fmt.Fprintf(&out, "== %s\n%s\n", name, strings.Join(keep, "\n"))
		for _, l := range got {
			fmt.Fprintf(&out, "> %s\n", l)
		}
		out.WriteByte('\n')
	}
	for id := range ids {
		if !told[id] {
			t.Errorf("%s: no case breaks it", id)
		}
	}
	if *update {
		if err := os.WriteFile(golden, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d cases", n)
}

// What is remembered has an end, behind which nothing is claimed.
func TestLedger(t *testing.T) {
	var l ledger[int]
	for i := range mostIDs {
		if !l.put(fmt.Sprint(i), i) || l.blind {
			t.Fatalf("id %d was not taken", i)
		}
	}
	if l.put("more", 1) || !l.blind {
		t.Error("an id beyond the limit was taken, or not noticed")
	}
	if !l.put("7", 70) {
		t.Error("an id that is known was refused")
	}
	if n, ok := l.get("7"); n != 70 || !ok {
		t.Errorf("get gives %d, %v", n, ok)
	}
	if l.drop("7"); !l.put("more", 1) {
		t.Error("no place after one was made")
	}
	if l.reset(); l.blind || len(l.m) != 0 {
		t.Error("reset left something")
	}
}

func TestIDOf(t *testing.T) {
	long := `"` + strings.Repeat("a", 100) + `"`
	for _, k := range []struct {
		v   string
		ok  bool
		len int
	}{{`"a"`, true, 3}, {`""`, false, 0}, {`7`, false, 0}, {``, false, 0}, {`"x {{sessionId}}"`, false, 0}, {long, true, 32}} {
		id, ok := idOf([]byte(k.v))
		if ok != k.ok || len(id) != k.len {
			t.Errorf("idOf(%s) = %d bytes, %v, want %d, %v", k.v, len(id), ok, k.len, k.ok)
		}
	}
}

// An inbox that is too full is no longer followed, and nothing is said about it.
func TestInboxFull(t *testing.T) {
	var lines []string
	lines = append(lines, inStep...)
	const each = 512
	for i := 0; i <= mostWaiting; i += each {
		var b strings.Builder
		for j := range each {
			if j > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `{"content":[],"source":{"kind":"user"},"role":"user","id":"m%d"}`, i+j)
		}
		lines = append(lines, `agent/inbox/spliced {"target":"next-turn","start":0,"inserted":[`+b.String()+`]}`)
	}
	lines = append(lines,
		`agent/inbox/spliced {"target":"next-turn","start":99999,"removedCount":1,"inserted":[{"content":[],"source":{"kind":"user"},"role":"user","id":"m0"}]}`,
		`step/end {"turn":1,"step":1}`, `turn/end {"turn":1,"reason":{"kind":"interrupted"}}`)
	if res := judge(t, []byte(script(`,"delegationDepth":0`, lines)), Options{}); res.Verdict != OK {
		t.Errorf("verdict %s:\n%s", res.Verdict, verdictLines(res))
	}
}

// Generation 1 holds the events of generation 0 as they were: what is found in
// them is the same, and as grave as the last build of generation 0 takes it.
func TestPluginRulesFirst(t *testing.T) {
	ids := pluginRuleIDs()
	found := func(log string) (out []string) {
		for _, f := range judge(t, []byte(log), Options{}).Findings {
			if ids[f.Rule] {
				out = append(out, fmt.Sprintf("%d %s %s", f.Seq, f.Rule, f.Message))
			}
		}
		return out
	}
	n := 0
	for _, block := range strings.Split(string(read(t, filepath.Join("testdata", "plugins.golden"))), "== ")[1:] {
		name, body, _ := strings.Cut(block, "\n")
		begin, header, gone := inStep, `,"delegationDepth":0`, ""
		var events []string
		for _, l := range strings.Split(strings.TrimSpace(body), "\n") {
			key, rest, _ := strings.Cut(l, " ")
			switch _, ok := vocabulary1[strings.TrimPrefix(key, "+")]; {
			case key == ">":
			case key == "begin":
				if begin = beginnings[rest]; rest == "old" {
					gone = "an old shape"
				}
			case key == "header":
				header = "," + rest
			case !ok:
				gone = key
			default:
				events = append(events, l)
			}
		}
		if gone != "" {
			continue // the step to generation 1 refuses or changes it
		}
		n++
		log := script(header, slices.Concat(begin, events))
		want, got := found(log), found(strings.Replace(log, `"version":0`, `"version":1`, 1))
		if strings.HasPrefix(name, "RETRY between the steps of a turn") {
			// The step to generation 1 gives such a retry an id that tells.
			log = strings.ReplaceAll(log, `"policyKey"`, `"retryId":"legacy-retry:s:1","policyKey"`)
			got = found(strings.Replace(log, `"version":0`, `"version":1`, 1))
		}
		if !cmp.Equal(want, got) {
			t.Errorf("%s (-generation 0 +generation 1):\n%s", name, cmp.Diff(want, got))
		}
	}
	if n < 90 {
		t.Errorf("only %d cases", n)
	}
	t.Logf("%d cases", n)
}

// From generation 2 on only what the vocabulary says of values is held to, and what
// waits in the inbox.
func TestPluginGenerations(t *testing.T) {
	const later = `{"type":"session","version":%d,"id":"s","createdAt":1,"cwd":"/w","delegationDepth":0%s}` + "\n"
	for _, tt := range []struct {
		event string
		want  string // by generation: rule and severity, - for nothing
	}{
		{`plan/mode {"active":1}`, "PLAN error error warning warning warning"},
		{`sandbox/mode {"mode":"write"}`, "SANDBOX warning error warning warning warning"},
		{`approval/policy {"policy":"later"}`, "APPR-PAIR warning error warning warning warning"},
		{`approval/decided {"id":"a","outcome":"cancelled"}`, "APPR-PAIR warning error - - -"},
		{`permission/preset {"preset":""}`, "PRESET warning warning - - -"},
		{`tool-workflow/run-end {"runId":"r","stopReason":"completed"}`, "WF error error - - -"},
		{`team/message/delivered {"version":1,"teamId":"t","messageId":"m","targetId":"x"}`, "TEAM error error - - -"},
		{`schedule/change {"version":1,"operation":"delete","id":"x"}`, "SCHED error error - - -"},
		{`goal/change {"kind":"goal/change","version":1,"operation":"clear","cleared":{"id":"g","revision":2},"clearedAt":"2026-09-01T00:00:00.000Z"}`, "GOAL error error - - -"},
		{`agent/inbox/spliced {"target":"next-step","start":1,"inserted":[]}`, "INBOX error error warning warning warning"},
	} {
		rule, _, _ := strings.Cut(tt.want, " ")
		got := rule
		for version, more := range []string{"", "", `,"isSeeded":false`, `,"isSeeded":false`, `,"isSeeded":false`} {
			_, log, _ := strings.Cut(script("", []string{tt.event}), "\n")
			says := "-"
			for _, f := range judge(t, []byte(fmt.Sprintf(later, version, more)+log), Options{}).Findings {
				if f.Rule == rule {
					says = f.Severity.String()
				}
			}
			got += " " + says
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.event, got, tt.want)
		}
	}
}

// Ids that the step to generation 1 made tell of builds without companions.
func TestPluginLegacy(t *testing.T) {
	hook := []string{
		`turn/start {"turn":1}`,
		`user/message {"content":[],"source":{"kind":"user"},"role":"user","id":"ID"} "surfaceOp":"append"`,
		`hook/result {"turn":1,"point":"p","handlerId":"h","decision":"d","durationMs":1}`,
		`turn/end {"turn":1,"reason":{"kind":"completed"}}`,
	}
	for id, want := range map[string]Severity{"legacy-message:s:1": Warning, "u1": Error} {
		log := strings.NewReplacer(`"version":0`, `"version":1`, `"ID"`, `"`+id+`"`).Replace(script(`,"delegationDepth":0`, hook))
		var got []Severity
		for _, f := range judge(t, []byte(log), Options{}).Findings {
			if f.Rule == "HOOK-PAIR" {
				got = append(got, f.Severity)
			}
		}
		if !slices.Equal(got, []Severity{want}) {
			t.Errorf("%s: HOOK-PAIR %v, want %s", id, got, want)
		}
	}
}
