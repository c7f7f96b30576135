package invariants

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Of a request that read nothing or little from the cache the log often says why: then
// it is a note that names the cause. Where it does not, it is a warning that names the
// step.
func TestCacheCauses(t *testing.T) {
	usage := func(input, read int) string {
		return fmt.Sprintf(`{"inputTokens":%d,"outputTokens":10,"cacheReadTokens":%d}`, input, read)
	}
	answer := func(turn, step, first int, id, content, finish string, usage string) []string {
		return []string{
			fmt.Sprintf(`assistant/chunk {"turn":%d,"step":%d,"chunk":{"type":"usage","usage":%s}}`, turn, step, usage),
			fmt.Sprintf(`assistant/chunk {"turn":%d,"step":%d,"chunk":{"type":"finish","reason":{"kind":"%s"}}}`, turn, step, finish),
			fmt.Sprintf(`assistant/message {"turn":%d,"step":%d,"message":{"role":"assistant","content":[%s],"source":{"kind":"model","provider":"p","model":"m"},"id":%q},"usage":%s}`+"\t"+`,"sourceEventSeqs":[%d,%d],"surfaceOp":"append"`,
				turn, step, content, id, usage, first, first+1),
		}
	}
	head := func(fields, reason string) string {
		return `request/header {"header":{"config":{"provider":"p","model":"m"}` + fields + `},"reason":"` + reason + `"}`
	}
	user := func(id string) string {
		return `user/message {"content":[{"type":"text","text":"` + id + `"}],"source":{"kind":"user"},"role":"user","id":"` + id + `"}` + "\t" + `,"surfaceOp":"append"`
	}
	end := func(turn int) []string {
		return []string{fmt.Sprintf(`step/end {"turn":%d,"step":1}`, turn), fmt.Sprintf(`turn/end {"turn":%d,"reason":{"kind":"completed"}}`, turn)}
	}
	// A first turn of 4000 tokens; events 0 to 8.
	first := append([]string{`turn/start {"turn":1}`, `step/start {"turn":1,"step":1}`, user("u1"), head("", "initial")},
		append(answer(1, 1, 4, "a1", `{"type":"text","text":"a"}`, "stop", usage(4000, 0)), end(1)...)...)
	// between it and the second stands what the case is about, before the step and in it.
	second := func(before, inside []string, usage string) []string {
		var l []string
		l = append(l, first...)
		l = append(l, before...)
		l = append(l, `turn/start {"turn":2}`, `step/start {"turn":2,"step":1}`, user("u2"))
		l = append(l, inside...)
		n := len(l)
		l = append(l, answer(2, 1, n, "a2", `{"type":"text","text":"b"}`, "stop", usage)...)
		return append(l, end(2)...)
	}
	const zero = "turn 2 step 1 read none of its 4100 prompt tokens from the cache, expected about 3968, the request of turn 1 step 1"
	for _, c := range []struct {
		name  string
		lines []string
		want  []string
	}{
		{"read", second(nil, nil, usage(132, 3968)), nil},
		{"read half", second(nil, nil, usage(2116, 1984)), nil},
		{"unexplained", second(nil, nil, usage(4100, 0)), []string{"CACHE-ZERO warning 12: " + zero}},
		{"unexplained, a little was read", second(nil, nil, usage(2117, 1983)), []string{
			"CACHE-COLLAPSE warning 12: turn 2 step 1 read only 1983 of its 4100 prompt tokens from the cache, expected about 3968, the request of turn 1 step 1"}},
		{"not said", second(nil, nil, `{"inputTokens":4100,"outputTokens":10}`), nil},
		{"system", second(nil, []string{head(`,"system":"s"`, "change")}, usage(4100, 0)), []string{"CACHE-ZERO note 13: " + zero + ": the header changed in system at seq 12"}},
		{"tools", second(nil, []string{head(`,"tools":[{"name":"x","description":"d","parameters":{}}]`, "change")}, usage(4100, 0)),
			[]string{"CACHE-ZERO note 13: " + zero + ": the header changed in tools at seq 12"}},
		{"outside the prompt", second(nil, []string{strings.Replace(head("", "change"), `"model":"m"`, `"model":"m","maxTokens":9`, 1)}, usage(4100, 0)),
			[]string{"CACHE-ZERO warning 13: " + zero}},
		{"another model", second(nil, []string{strings.Replace(head("", "change"), `"model":"m"`, `"model":"n"`, 1)}, usage(4100, 0)),
			[]string{"CACHE-ZERO note 13: " + zero + ": another model was asked"}},
		{"another process", second([]string{`session/end-seed {}`}, []string{head("", "resume")}, usage(4100, 0)),
			[]string{"CACHE-ZERO note 14: " + zero + ": another process took over"}},
		{"compaction", second([]string{
			`compaction/start {"turn":null,"compactionId":"c","trigger":"manual"}`,
			`compaction/summary {"compactionId":"c","summary":[{"type":"text","text":"s"}]}`,
			`user/message {"content":[{"type":"text","text":"sum"}],"source":{"kind":"compaction","compactionId":"c"},"role":"user","id":"k"}` + "\t" + `,"sourceEventSeqs":[9,10,2,6],"surfaceOp":{"op":"replace","start":2,"end":6}`,
			`compaction/end {"turn":null,"compactionId":"c"}`,
		}, nil, usage(4100, 0)), []string{"CACHE-ZERO note 16: " + zero + ": the history was compacted from message 1 on at seq 11"}},
	} {
		data := `{"type":"session","version":0,"id":"s","createdAt":1,"cwd":"/w","delegationDepth":0}` + "\n" + eventLines(c.lines...)
		res := judge(t, []byte(data), Options{Rules: func(id string) bool { return strings.HasPrefix(id, "CACHE-") }})
		var got []string
		for _, f := range res.Findings {
			got = append(got, fmt.Sprintf("%s %s %d: %s", f.Rule, f.Severity, f.Seq, f.Message))
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}

	// A pruned result of a tool, and an attempt that failed.
	call := `{"type":"tool-call","id":"c1","name":"x","arguments":"{}"}`
	lines := append([]string{`turn/start {"turn":1}`, `step/start {"turn":1,"step":1}`, user("u1"), head("", "initial")},
		answer(1, 1, 4, "a1", call, "tool-calls", usage(2000, 0))...)
	result := func(id, text, more string) string {
		return `tool/result {"turn":1,"step":1,"message":{"role":"user","content":[{"type":"tool-result","toolCallId":"c1","content":[{"type":"text","text":"` + text + `"}]}],"source":{"kind":"tool","callId":"c1"},"id":"` + id + `"}}` + "\t" + more
	}
	lines = append(lines,
		`tool/call {"turn":1,"step":1,"callId":"c1","name":"x","arguments":"{}"}`,
		result("r1", "long", `,"sourceEventSeqs":[7],"surfaceOp":"append"`),
		`step/end {"turn":1,"step":1}`, `step/start {"turn":1,"step":2}`)
	lines = append(lines, answer(1, 2, 11, "a2", `{"type":"text","text":"b"}`, "stop", usage(2000, 1920))...)
	lines = append(lines,
		result("r1", "short", `,"sourceEventSeqs":[8],"surfaceOp":{"op":"replace","start":8,"end":8}`),
		`step/end {"turn":1,"step":2}`, `step/start {"turn":1,"step":3}`,
		`assistant/chunk {"turn":1,"step":3,"chunk":{"type":"usage","usage":`+usage(2000, 0)+`}}`,
		`assistant/chunk {"turn":1,"step":3,"chunk":{"type":"finish","reason":{"kind":"error"}}}`)
	lines = append(lines, answer(1, 3, 19, "a3", `{"type":"text","text":"c"}`, "stop", usage(2000, 0))...)
	res := judge(t, []byte(`{"type":"session","version":0,"id":"s","createdAt":1,"cwd":"/w","delegationDepth":0}`+"\n"+eventLines(lines...)),
		Options{Rules: func(id string) bool { return strings.HasPrefix(id, "CACHE-") }})
	var got []string
	for _, f := range res.Findings {
		if f.Rule != "TAIL-OPEN" {
			got = append(got, fmt.Sprintf("%s %s %d: %s", f.Rule, f.Severity, f.Seq, f.Message))
		}
	}
	want := []string{
		"CACHE-ZERO note 17: turn 1 step 3 read none of its 2000 prompt tokens from the cache, expected about 3840, the request of turn 1 step 2: a tool result was pruned from message 3 on at seq 14",
		"CACHE-ZERO note 19: turn 1 step 3 read none of its 2000 prompt tokens from the cache, expected about 1920, the request of turn 1 step 3: the attempt before it failed",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("prune and retry (-want +got):\n%s", d)
	}
}
