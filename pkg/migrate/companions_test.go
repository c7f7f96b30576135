package migrate

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/invariants"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// sound is a log of generation 0 with an event of every plugin that this test
// breaks. A line is type, data and what else the envelope holds; @NAME stands for
// the seq of the line that begins with NAME=.
var sound = []string{
	`agent/inbox/spliced {"target":"next-turn","start":0,"inserted":[{"content":[{"type":"text","text":"q"}],"source":{"kind":"user"},"role":"user","id":"u1"}]}`,
	`turn/start {"turn":1}`,
	`agent/inbox/spliced {"target":"next-turn","start":0,"removedCount":1,"inserted":[]}`,
	`step/start {"turn":1,"step":1}`,
	`user=user/message {"content":[{"type":"text","text":"q"}],"source":{"kind":"user"},"role":"user","id":"u1"} "surfaceOp":"append"`,
	`request/header {"header":{"config":{"provider":"p","model":"m"},"system":"Be brief."},"reason":"initial"}`,
	`request/context {"provider":"p","model":"m","contextWindow":9}`,
	`fault=assistant/chunk {"turn":1,"step":1,"chunk":{"type":"finish","reason":{"kind":"error","failure":{"message":"busy","code":"BUSY"}}}}`,
	`llm/retry {"retryId":"t","turn":1,"step":1,"provider":"p","mode":"normal","policyKey":"k","retry":1,"maxRetries":2,"delayMs":5,"failure":{"message":"busy","code":"BUSY","status":503}}`,
	`llm/retry-started {"retryId":"t","turn":1,"step":1,"retry":1}`,
	`ask=assistant/chunk {"turn":1,"step":1,"chunk":{"type":"block-end","index":0,"block":{"type":"tool-call","id":"c1","name":"x","arguments":"{}"}}}`,
	`asked=assistant/chunk {"turn":1,"step":1,"chunk":{"type":"finish","reason":{"kind":"tool-calls"}}}`,
	`answer=assistant/message {"turn":1,"step":1,"message":{"role":"assistant","content":[{"type":"tool-call","id":"c1","name":"x","arguments":"{}"}],"source":{"kind":"model","provider":"p","model":"m"},"id":"a1"}} "sourceEventSeqs":[@ask,@asked],"surfaceOp":"append"`,
	`call=tool/call {"turn":1,"step":1,"callId":"c1","name":"x","arguments":"{}"}`,
	`hook/invoked {"turn":1,"point":"pre","dialect":"codex","handlerId":"h"}`,
	`hook/result {"turn":1,"point":"pre","handlerId":"h","decision":"allow","durationMs":1}`,
	`approval/asked {"id":"v","toolName":"x"}`,
	`approval/decided {"id":"v","outcome":"allowed-once"}`,
	`tool/code-dispatch-start {"rootCallId":"c1","parentCallId":"c1","subCallId":"c1:code:1","name":"y","arguments":{}}`,
	`tool/code-dispatch {"rootCallId":"c1","parentCallId":"c1","subCallId":"c1:code:1","name":"y","arguments":{},"isError":false,"content":[]}`,
	`todo/write {"todos":[{"content":"one","status":"pending"},{"content":"two","status":"completed"}]}`,
	`result=tool/result {"turn":1,"step":1,"message":{"source":{"kind":"tool","callId":"c1"},"content":[{"type":"tool-result","toolCallId":"c1","content":[{"type":"text","text":"r"}],"isError":false}],"role":"user","id":"r1"}} "sourceEventSeqs":[@call],"surfaceOp":"append"`,
	`step/end {"turn":1,"step":1}`,
	`turn/end {"turn":1,"reason":{"kind":"completed"}}`,
	`plan/mode {"active":true}`,
	`sandbox/mode {"mode":"read-only"}`,
	`permission/preset {"preset":"careful"}`,
	`session/title {"title":"T","messageSeqs":[@user],"source":{"kind":"fallback"}}`,
	`command/run {"commandId":"k1","name":"n","source":{"kind":"user"}}`,
	`command/done {"commandId":"k1","kind":"success"}`,
	`tool-workflow/run-start {"runId":"w","name":"n"}`,
	`tool-workflow/agent-start {"runId":"w","seq":1,"label":"l","childId":"c"}`,
	`tool-workflow/agent-end {"runId":"w","seq":1,"outcome":"completed"}`,
	`tool-workflow/run-end {"runId":"w","stopReason":"completed"}`,
	`schedule/change {"version":1,"operation":"create","schedule":{"id":"s1","kind":"at","prompt":"p","scheduledAt":"2026-09-01T00:00:00.000Z"}}`,
	`schedule/change {"version":1,"operation":"dispatch","id":"s1"}`,
	`team/message/queued {"version":1,"teamId":"t","message":{"id":"m1","senderId":"x","senderName":"X","targetId":"y","delivery":"quiet","content":[]}}`,
	`team/message/delivered {"version":1,"teamId":"t","messageId":"m1","targetId":"y"}`,
	`goal/change {"kind":"goal/change","version":1,"operation":"create","goal":{"id":"g","revision":1,"phase":"active","objective":"o","maxRounds":3},"roundsStarted":0,"createdAt":1,"updatedAt":1}`,
	`goal/change {"kind":"goal/change","version":1,"operation":"pause","goal":{"id":"g","revision":2,"phase":"paused","objective":"o","maxRounds":3},"roundsStarted":0,"createdAt":1,"updatedAt":2}`,
	`start=compaction/start {"compactionId":"z","turn":null}`,
	`sum=compaction/summary {"compactionId":"z","summary":[{"type":"text","text":"s"}],"shadowedRange":{"start":@user,"end":@result},"shadowedSeqs":[@user,@answer,@result],"shadowedTokenCount":1,"provider":"p","model":"m"}`,
	`user/message {"content":[{"type":"text","text":"s"}],"source":{"kind":"plugin","plugin":"compact","compactionId":"z"},"role":"user","id":"k"} "sourceEventSeqs":[@start,@sum,@user,@answer,@result],"surfaceOp":{"op":"replace","start":@user,"end":@result}`,
	`compaction/end {"compactionId":"z","turn":null}`,
}

// written is a log of generation 0 made of such lines.
func written(lines []string) []byte {
	var seqs []string
	for i, l := range lines {
		if name, _, ok := strings.Cut(l[:strings.IndexByte(l, ' ')], "="); ok {
			seqs = append(seqs, "@"+name+",", fmt.Sprint(i)+",", "@"+name+"]", fmt.Sprint(i)+"]", "@"+name+"}", fmt.Sprint(i)+"}")
		}
	}
	name := strings.NewReplacer(seqs...)
	b := []byte(`{"type":"session","version":0,"id":"s","createdAt":1788000000000,"cwd":"/w","delegationDepth":0}` + "\n")
	for i, l := range lines {
		typ, rest, _ := strings.Cut(l, " ")
		if _, after, ok := strings.Cut(typ, "="); ok {
			typ = after
		}
		rest = name.Replace(rest)
		end := jsjson.Skip([]byte(rest), 0)
		more := strings.TrimSpace(rest[end:])
		if more != "" {
			more = "," + more
		}
		b = fmt.Appendf(b, `{"type":%q,"seq":%d,"time":%d,"data":%s%s}`+"\n", typ, i, 1788000000001+i, rest[:end], more)
	}
	return b
}

// generations is a log in every generation, the one it was written in first.
func generations(t *testing.T, text []byte) [5][]byte {
	t.Helper()
	out := [5][]byte{text}
	log, err := logfmt.NewReader(bytes.NewReader(text), "", logfmt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run(context.Background(), log, 4, func(gen int64, line []byte) { out[gen] = append(out[gen], line...) }); err != nil {
		t.Fatal(err)
	}
	return out
}

func judged(t *testing.T, text []byte) *invariants.Result {
	t.Helper()
	log, err := logfmt.NewReader(bytes.NewReader(text), "", logfmt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	res, err := invariants.Check(context.Background(), log, invariants.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// TestBreaches: what breaks a log of generation 0 breaks what the chain makes of
// it, as far as it is known of the later generation.
func TestBreaches(t *testing.T) {
	for gen, text := range generations(t, written(sound)) {
		// In generations 0 and 1 chunks are events, and those here leave out the
		// starts of their blocks. The steps leave the streams of the others empty.
		if res := judged(t, text); res.Errors > 0 || gen > 1 && res.Warnings > 0 {
			t.Fatalf("generation %d of the sound log: %s %v", gen, res.Verdict, brief(res))
		}
	}
	for _, tt := range []struct {
		rule     string
		old, new string // in the line of the log that has it; "" takes the line away
		want     string // severity by generation, - for nothing
	}{
		{"HOOK-PAIR", `"dialect":"codex"`, `"dialect":"basic"`, "error error warning warning warning"},
		{"HOOK-PAIR", `hook/invoked`, "", "error error - - -"},
		{"APPR-PAIR", `"outcome":"allowed-once"`, `"outcome":"allowed"`, "error error warning warning warning"},
		{"APPR-PAIR", `approval/asked`, "", "error error - - -"},
		{"DISPATCH", `code-dispatch {"rootCallId":"c1"`, `code-dispatch {"rootCallId":"c2"`, "error error error error error"},
		{"TODO", `"status":"pending"`, `"status":"later"`, "error error warning warning warning"},
		{"TODO", `"content":"two"`, `"content":"one"`, "error error - - -"},
		{"PLAN", `"active":true`, `"active":"yes"`, "error error warning warning warning"},
		{"SANDBOX", `"read-only"`, `"read"`, "error error warning warning warning"},
		{"PRESET", `"careful"`, `""`, "warning warning - - -"},
		{"TITLE", `"messageSeqs":[@user]`, `"messageSeqs":[]`, "error error error error error"},
		{"CMD", `command/run`, "", "error error error error error"},
		{"WF", `"outcome":"completed"`, `"outcome":"lost"`, "error error warning warning warning"},
		{"WF", `tool-workflow/run-start`, "", "error error - - -"},
		{"SCHED", `"operation":"create","schedule"`, "", "error error - - -"},
		{"TEAM", `team/message/queued`, "", "error error - - -"},
		{"GOAL", `"revision":2`, `"revision":3`, "error error - - -"},
		{"RETRY", `"retry":1,"maxRetries"`, `"retry":2,"maxRetries"`, "error error error error error"},
		{"RETRY", `"status":503`, `"status":50`, "error error warning warning warning"},
		{"RETRY", `"maxRetries":2,`, ``, "error error warning warning warning"},
		{"RETRY-START", `started {"retryId":"t"`, `started {"retryId":"t2"`, "error error error error error"},
		{"INBOX", `"removedCount":1`, `"removedCount":2`, "error error warning warning warning"},
		{"INBOX-COPY", `"text":"q"}],"source":{"kind":"user"},"role":"user","id":"u1"} `, `"text":"r"}],"source":{"kind":"user"},"role":"user","id":"u1"} `, "warning warning - - -"},
		{"CMP-ID", `summary {"compactionId":"z"`, `summary {"compactionId":"z2"`, "error error error error error"},
		{"CMP-RANGE", `"end":@result},"shadowedSeqs"`, `"end":@answer},"shadowedSeqs"`, "error error error error error"},
		{"CMP-CITE", `[@start,@sum,`, `[@sum,@start,`, "warning warning warning warning warning"},
		{"CMP-PAIR", `start=compaction/start`, "", "error error error error error"},
		{"CMP-OWNER", `start {"compactionId":"z","turn":null}`, `start {"compactionId":"z","turn":1}`, "error error error error error"},
		{"CTX-CHANGE", `"model":"m","contextWindow"`, `"model":"o","contextWindow"`, "warning warning warning warning warning"},
		{"RESULT-CITE", `"sourceEventSeqs":[@call]`, `"sourceEventSeqs":[@answer]`, "warning warning warning warning warning"},
		{"CALL-MATCH", `"name":"x","arguments":"{}"}`, `"name":"x","arguments":"{1}"}`, "warning warning error error error"},
	} {
		lines := slices.Clone(sound)
		n := 0
		for i, l := range lines {
			// Calls are broken where they are logged, not in the answer.
			if !strings.Contains(l, tt.old) || tt.rule == "CALL-MATCH" && !strings.HasPrefix(l, "call=") {
				continue
			}
			n++
			if tt.new == "" && !strings.HasPrefix(tt.old, `"maxRetries`) {
				// The name stays: the line becomes one that breaks nothing.
				name, _, ok := strings.Cut(l[:strings.IndexByte(l, ' ')], "=")
				lines[i] = `feedback/record {"text":"f"}`
				if ok {
					lines[i] = name + "=" + lines[i]
				}
				continue
			}
			lines[i] = strings.Replace(l, tt.old, tt.new, 1)
		}
		if n != 1 {
			t.Errorf("%s: %d lines have %s", tt.rule, n, tt.old)
			continue
		}
		var got []string
		for _, text := range generations(t, written(lines)) {
			says := "-"
			for _, f := range judged(t, text).Findings {
				if f.Rule == tt.rule && says != "error" {
					says = f.Severity.String()
				}
			}
			got = append(got, says)
		}
		if d := cmp.Diff(tt.want, strings.Join(got, " ")); d != "" {
			t.Errorf("%s, %s: by generation (-want +got):\n%s", tt.rule, tt.old, d)
		}
	}
}

func brief(res *invariants.Result) (out []string) {
	for _, f := range res.Findings {
		out = append(out, fmt.Sprintf("%s %s %d: %s", f.Rule, f.Severity, f.Seq, f.Message))
	}
	return out
}
