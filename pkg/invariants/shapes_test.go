package invariants

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// shapeFindings judges one event as if one build had written it.
func shapeFindings(typ string, b Build, data []byte) []*Finding {
	c := newContext(&logfmt.Log{}, Options{MaxPerRule: 100})
	c.Builds = Builds{b, b}
	c.rule = byID["EVT-SHAPE"]
	e := &logfmt.Event{Type: typ, Data: data, Pos: logfmt.Position{Member: -1}}
	c.read(e)
	new(shapeChecker).Event(c, e)
	if found := c.found["EVT-SHAPE"]; found != nil {
		return found.kept
	}
	return nil
}

// A mutation is a value with one place of it changed.
type mutation struct {
	path, what string
	value      []byte
}

// wrong are the values that a value is exchanged for: other types, and of its
// own type one that is out of range or not in any vocabulary.
func wrong(v []byte) []string {
	switch jsjson.KindOf(v) {
	case jsjson.String:
		return []string{`7`, `"zz"`, `""`}
	case jsjson.Number:
		return []string{`"7"`, `-1`, `1.5`}
	case jsjson.Object:
		return []string{`[]`}
	case jsjson.Array:
		return []string{`{}`}
	}
	return []string{`"x"`}
}

func mutations(path string, v []byte) []mutation {
	var out []mutation
	within := func(path string, before, after []byte, v []byte) {
		put := func(x []byte) []byte { return bytes.Join([][]byte{before, x, after}, nil) }
		for _, w := range wrong(v) {
			out = append(out, mutation{path, "is " + w, put([]byte(w))})
		}
		for _, m := range mutations(path, v) {
			m.value = put(m.value)
			out = append(out, m)
		}
	}
	switch jsjson.KindOf(v) {
	case jsjson.Object:
		i := 1
		for key, val := range jsjson.Members(v) {
			k, _ := jsjson.Str(key)
			at := path + "." + k
			j := i + len(key) + 1
			end := j + len(val)
			rest := bytes.Clone(v[:i])
			if v[end] == ',' {
				rest = append(rest, v[end+1:]...)
			} else {
				rest = append(bytes.TrimSuffix(rest, []byte(",")), v[end:]...)
			}
			out = append(out, mutation{at, "is absent", rest})
			within(at, v[:j], v[end:], val)
			i = end + 1
		}
	case jsjson.Array:
		if first := jsjson.Index(v, 0); first != nil {
			within(path+"[0]", v[:1], v[1+len(first):], first)
		}
	}
	return out
}

// Every member of every sample is left out and exchanged for what it must not
// be. What that gives is in testdata/shapes.golden, for a human to review; a
// change that is not listed there is tolerated.
func TestShapes(t *testing.T) {
	var got strings.Builder
	tried, found := 0, 0
	seen := map[string]bool{}
	for _, s := range shapeSamples {
		data := []byte(s.data)
		if !jsjson.Canonical(data) {
			t.Fatalf("%s: the sample is not canonical: %s", s.typ, s.data)
		}
		for _, f := range shapeFindings(s.typ, s.build, data) {
			t.Errorf("%s of %s: %s: %s", s.typ, s.build, s.data, f.Message)
		}
		fmt.Fprintf(&got, "== %s, %s\n   %s\n", s.typ, s.build, s.data)
		for _, m := range mutations("data", data) {
			tried++
			fs := shapeFindings(s.typ, s.build, m.value)
			if len(fs) > 0 {
				found++
				fmt.Fprintf(&got, "%s %s\n", m.path, m.what)
			}
			for _, f := range fs {
				seen[s.typ+" "+f.Path] = true
				fmt.Fprintf(&got, "   %s: %s\n", f.Severity, f.Message)
			}
		}
		if fs := shapeFindings(s.typ, s.build, []byte(`[]`)); eventShapes[s.typ].message != "." {
			if want := fmt.Sprintf("data of %s is [], expected an object", s.typ); len(fs) != 1 || fs[0].Message != want {
				t.Errorf("%s: data [] gives %d findings, want %q", s.typ, len(fs), want)
			}
		}
	}
	for typ, is := range eventShapes {
		for _, p := range is.parts {
			if !seen[typ+" data."+p.key] {
				t.Errorf("%s: no sample shows what is wrong with %s", typ, p.key)
			}
		}
	}
	t.Logf("%d changes to %d samples, %d of them findings", tried, len(shapeSamples), found)
	golden := filepath.Join("testdata", "shapes.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(string(read(t, golden)), got.String()); d != "" {
		t.Errorf("%s (-want +got):\n%s", golden, d)
	}
}

// Every type of the catalogue has a shape, but for those whose payload has rules
// of its own.
func TestShapesComplete(t *testing.T) {
	own := map[string]string{"request/header": "HDR-SHAPE", "request/header-delta": "HDR-DELTA"}
	for typ := range lifetimes {
		if _, ok := eventShapes[typ]; !ok && own[typ] == "" {
			t.Errorf("%s has no shape", typ)
		}
	}
	for typ := range eventShapes {
		if _, ok := lifetimes[typ]; !ok {
			t.Errorf("%s has a shape and no lifetime", typ)
		}
	}
}

// A deep pile of tool results is looked into only so far.
func TestShapesDeep(t *testing.T) {
	const deep = 100000
	data := `{"content":` + strings.Repeat(`[{"type":"tool-result","toolCallId":"c","content":`, deep) + `[{"type":"text"}]` +
		strings.Repeat(`}]`, deep) + `,"source":{"kind":"user"},"role":"user","id":"u"}`
	if fs := shapeFindings("user/message", lastBuild, []byte(data)); len(fs) != 0 {
		t.Errorf("%d findings, want none below the depth that is looked into", len(fs))
	}
}

// Chunks are most of a log: nothing is allocated for a sound one.
func TestShapesAllocate(t *testing.T) {
	c := newContext(&logfmt.Log{}, Options{})
	c.Builds = Builds{lastBuild, lastBuild}
	c.rule = byID["EVT-SHAPE"]
	k := new(shapeChecker)
	for _, s := range shapeSamples {
		if s.typ != "assistant/chunk" || s.build != lastBuild {
			continue
		}
		e := &logfmt.Event{Type: s.typ, Data: []byte(s.data)}
		if n := testing.AllocsPerRun(20, func() { c.read(e); k.Event(c, e) }); n != 0 {
			t.Errorf("%s: %v allocations", s.data, n)
		}
	}
	if len(c.found) != 0 {
		t.Errorf("findings of %d rules", len(c.found))
	}
}

const image = `{"attachmentId":"sha256:00","mediaType":"image/png","bytes":9,"width":4,"height":3,"name":"a.png","originalDimensions":{"width":40,"height":30}}`

var shapeSamples = []struct {
	typ   string
	build Build
	data  string
}{
	{"turn/start", 7_01_00_00, `{"turn":1,"trigger":{"kind":"message","source":{"kind":"user"}}}`},
	{"turn/start", lastBuild, `{"turn":1}`},
	{"turn/end", lastBuild, `{"turn":1,"reason":{"kind":"completed"}}`},
	{"turn/end", 6_12_00_00, `{"turn":1,"reason":{"kind":"error","message":"m","code":"c"}}`},
	{"turn/end", 6_12_00_00, `{"turn":1,"reason":{"kind":"aborted","reason":"r"}}`},
	{"turn/end", 7_10_00_00, `{"turn":1,"reason":{"kind":"error","step":1,"message":"m","code":"c"}}`},
	{"turn/end", 7_10_00_00, `{"turn":1,"reason":{"kind":"rejected","reason":"r"}}`},
	{"turn/end", 7_21_00_00, `{"turn":1,"reason":{"kind":"error","step":1,"failure":{"message":"m","code":"c","status":500,"providerRetryAfterMs":1,"requestId":"r"}}}`},
	{"turn/end", lastBuild, `{"turn":1,"reason":{"kind":"error","error":{"message":"m","code":"c","status":500,"providerRetryAfterMs":1,"requestId":"r"}}}`},
	{"turn/end", lastBuild, `{"turn":1,"reason":{"kind":"aborted","reason":{"kind":"hook","reason":"r"}}}`},
	{"step/start", lastBuild, `{"turn":1,"step":1}`},
	{"step/end", lastBuild, `{"turn":1,"step":1}`},
	{"user/message", 6_12_00_00, `{"content":[{"type":"image","url":"u","mimeType":"m"}],"source":{"kind":"agent","agentId":"a"}}`},
	{"user/message", lastBuild, `{"content":[{"type":"text","text":"t"}],"source":{"kind":"user","rpcId":"r"},"role":"user","id":"u"}`},
	{"user/message", lastBuild, `{"content":[{"type":"image","attachment":` + image + `}],"source":{"kind":"plugin","plugin":"p","form":"snapshot","sections":[{"name":"n","text":"t"}],"summary":"s"},"role":"user","id":"u"}`},
	{"user/message", lastBuild, `{"content":[{"type":"plugin:x","any":1}],"source":{"kind":"goal","goalId":"g","revision":1,"round":1},"role":"user","id":"u"}`},
	{"user/message", lastBuild, `{"content":[],"source":{"kind":"team-message","teamId":"t","messageId":"m","senderId":"s","senderName":"n"},"role":"user","id":"u"}`},
	{"context/message", 7_10_00_00, `{"content":[{"type":"reasoning","text":"t"}],"source":{"kind":"plugin","plugin":"p"}}`},
	{"steering/message", 7_10_00_00, `{"turn":1,"content":[{"type":"text","text":"t"}],"source":{"kind":"user"}}`},
	{"steering/message", 8_01_00_00, `{"turn":1,"message":{"content":[{"type":"text","text":"t"}],"source":{"kind":"user"},"role":"user","id":"u"}}`},
	{"assistant/chunk", lastBuild, `{"turn":1,"step":1,"chunk":{"type":"block-start","index":0,"blockType":"text"}}`},
	{"assistant/chunk", lastBuild, `{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"t"}}`},
	{"assistant/chunk", lastBuild, `{"turn":1,"step":1,"chunk":{"type":"reasoning-delta","index":0,"text":"t"}}`},
	{"assistant/chunk", lastBuild, `{"turn":1,"step":1,"chunk":{"type":"tool-call-delta","index":0,"id":"c","name":"n","argumentsDelta":"{"}}`},
	{"assistant/chunk", lastBuild, `{"turn":1,"step":1,"chunk":{"type":"block-end","index":0,"block":{"type":"tool-call","id":"c","name":"n","arguments":"{}"}}}`},
	{"assistant/chunk", lastBuild, `{"turn":1,"step":1,"chunk":{"type":"usage","usage":{"inputTokens":1,"outputTokens":2,"cacheReadTokens":3,"cacheWriteTokens":4,"reasoningTokens":5,"totalTokens":6}}}`},
	{"assistant/chunk", lastBuild, `{"turn":1,"step":1,"chunk":{"type":"finish","reason":{"kind":"stop"}}}`},
	{"assistant/chunk", 7_10_00_00, `{"turn":1,"step":1,"chunk":{"type":"finish","reason":{"kind":"error","message":"m","code":"c"}}}`},
	{"assistant/chunk", 7_10_00_00, `{"turn":1,"step":1,"chunk":{"type":"finish","reason":{"kind":"aborted"}}}`},
	{"assistant/chunk", lastBuild, `{"turn":1,"step":1,"chunk":{"type":"finish","reason":{"kind":"error","failure":{"message":"m","code":"c","status":500,"providerRetryAfterMs":1,"requestId":"r"}}}}`},
	{"assistant/message", 7_10_00_00, `{"turn":1,"step":1,"content":[{"type":"text","text":"t"}],"usage":{"inputTokens":1,"outputTokens":2}}`},
	{"assistant/message", lastBuild, `{"turn":1,"step":1,"message":{"role":"assistant","content":[{"type":"tool-call","id":"c","name":"n","arguments":"{}"}],"source":{"kind":"model","provider":"p","model":"m"},"id":"a"},"interrupted":true,"usage":{"inputTokens":1,"outputTokens":2}}`},
	{"tool/call", lastBuild, `{"turn":1,"step":1,"callId":"c","name":"n","arguments":"{}"}`},
	{"tool/result", 7_10_00_00, `{"turn":1,"step":1,"callId":"c","content":[{"type":"text","text":"t"}],"isError":true,"error":{"name":"n","code":"c"},"meta":1}`},
	{"tool/result", lastBuild, `{"turn":1,"step":1,"message":{"source":{"kind":"tool","callId":"c"},"content":[{"type":"tool-result","toolCallId":"c","content":[{"type":"text","text":"t"}],"isError":false}],"role":"user","id":"r"},"error":{"name":"n","code":"c"}}`},
	{"request/context", lastBuild, `{"provider":"p","model":"m","contextWindow":9}`},
	{"todo/write", 7_01_00_00, `{"todos":[{"content":"c","status":"pending"}]}`},
	{"todo/write", lastBuild, `{"todos":[{"content":"c","status":"pending"}]}`},
	{"session/end-seed", lastBuild, `{}`},
	{"usage", 6_12_00_00, `{"turn":1,"step":1,"usage":{"inputTokens":1,"outputTokens":2}}`},
	{"error", 6_12_00_00, `{"turn":1,"step":1,"message":"m","code":"c"}`},
	{"prompt/blocked", 7_10_00_00, `{"content":[{"type":"text","text":"t"}],"source":{"kind":"user"},"reason":"r"}`},
	{"compact/start", 7_10_00_00, `{"turn":1}`},
	{"compact/start", 8_10_00_00, `{"compactionId":"k","sourceCommandId":"c","turn":null}`},
	{"compact/summary", 7_05_00_00, `{"summary":[{"type":"text","text":"t"}],"shadowedRange":{"start":1,"end":2},"shadowedSeqs":[1,2],"shadowedTokenCount":3}`},
	{"compact/summary", 8_10_00_00, `{"compactionId":"k","sourceCommandId":"c","summary":[{"type":"text","text":"t"}],"rawOutput":[{"type":"text","text":"t"}],"llmStreamCall":true,"shadowedRange":{"start":1,"end":2},"shadowedSeqs":[1,2],"shadowedTokenCount":3,"provider":"p","model":"m","maxTokens":4,"usage":{"inputTokens":1,"outputTokens":2}}`},
	{"compact/end", 7_10_00_00, `{"turn":1,"error":"e"}`},
	{"compact/end", 8_10_00_00, `{"compactionId":"k","sourceCommandId":"c","turn":null,"error":"e"}`},
	{"compact/prune", 8_10_00_00, `{"shadowedRange":{"start":1,"end":1},"shadowedSeqs":[1],"shadowedTokenCount":3}`},
	{"compaction/start", lastBuild, `{"compactionId":"k","sourceCommandId":"c","turn":1}`},
	{"compaction/summary", lastBuild, `{"compactionId":"k","sourceCommandId":"c","summary":[{"type":"text","text":"t"}],"rawOutput":[{"type":"text","text":"t"}],"llmStreamCall":true,"shadowedRange":{"start":1,"end":2},"shadowedSeqs":[1,2],"shadowedTokenCount":3,"provider":"p","model":"m","maxTokens":4,"usage":{"inputTokens":1,"outputTokens":2}}`},
	{"compaction/end", lastBuild, `{"compactionId":"k","sourceCommandId":"c","turn":1,"error":"e"}`},
	{"compaction/prune", lastBuild, `{"shadowedRange":{"start":1,"end":1},"shadowedSeqs":[1],"shadowedTokenCount":3}`},
	{"hook/invoked", 7_10_00_00, `{"turn":1,"point":"p","dialect":"codex","handlerId":"h","matcher":"m"}`},
	{"hook/invoked", lastBuild, `{"turn":1,"point":"p","dialect":"codex","handlerId":"h","matcher":"m"}`},
	{"hook/result", lastBuild, `{"turn":1,"point":"p","handlerId":"h","decision":"d","exitCode":0,"stderrSummary":"s","durationMs":1}`},
	{"tool/code-dispatch-start", 8_01_00_00, `{"parentCallId":"p","subCallId":"s","name":"n","arguments":{}}`},
	{"tool/code-dispatch-start", lastBuild, `{"rootCallId":"r","parentCallId":"p","subCallId":"s","name":"n","arguments":null}`},
	{"tool/code-dispatch", 7_10_00_00, `{"parentCallId":"p","subCallId":"s","name":"n","arguments":{},"isError":false,"resultSummary":"s"}`},
	{"tool/code-dispatch", lastBuild, `{"rootCallId":"r","parentCallId":"p","subCallId":"s","name":"n","arguments":{},"isError":false,"content":[{"type":"text","text":"t"}]}`},
	{"bash/sandbox-mode", 7_15_00_00, `{"mode":"read-only"}`},
	{"sandbox/mode", lastBuild, `{"mode":"read-only","source":"delegation"}`},
	{"approval/asked", lastBuild, `{"id":"i","toolName":"t","callId":"c","reason":"r"}`},
	{"approval/decided", lastBuild, `{"id":"i","outcome":"rejected"}`},
	{"approval/policy", lastBuild, `{"policy":"ask","source":"delegation"}`},
	{"permission/preset", lastBuild, `{"preset":"p"}`},
	{"llm/retry", 7_22_00_00, `{"turn":1,"step":1,"retry":1,"maxRetries":2,"delayMs":3,"failure":{"message":"m","code":"c"}}`},
	{"llm/retry", lastBuild, `{"retryId":"i","turn":1,"step":1,"provider":"p","mode":"normal","policyKey":"k","retry":1,"maxRetries":2,"delayMs":3,"failure":{"message":"m","code":"c","status":500,"providerRetryAfterMs":4,"requestId":"r"}}`},
	{"llm/retry-started", lastBuild, `{"retryId":"i","turn":1,"step":1,"retry":1}`},
	{"session/title", 7_22_00_00, `{"title":"t","messageSeqs":[1],"source":{"kind":"fallback"}}`},
	{"session/title", lastBuild, `{"title":"t","messageSeqs":[1],"source":{"kind":"provider","provider":"p","model":{"provider":"p","model":"m"}}}`},
	{"session/title-llm-request", lastBuild, `{"titleProvider":"p","messageSeqs":[1],"route":{"provider":"p","model":"m"},"system":"s","messages":[{"role":"user","content":[{"type":"text","text":"t"}]}],"maxTokens":9}`},
	{"plan/mode", lastBuild, `{"active":true}`},
	{"command/run", 8_01_00_00, `{"commandId":"c","name":"n","args":"a","source":{"kind":"user"}}`},
	{"command/run", lastBuild, `{"commandId":"c","name":"n","source":{"kind":"user"}}`},
	{"command/done", lastBuild, `{"commandId":"c","kind":"success","text":"t","sourceEventSeq":1}`},
	{"web/deepseek-search-llm-request", lastBuild, `{"endpoint":"e","apiVersion":"v","body":{"model":"m","max_tokens":9,"messages":[],"tools":[]}}`},
	{"model/selection", lastBuild, `{"provider":"p","model":"m","reasoningEffort":"low"}`},
	{"session-log-deepseek/delivery-accepted", lastBuild, `{"sessionId":"s","throughSeq":4}`},
	{"subagent/model-selection-policy", lastBuild, `{"allowedModels":[{"provider":"p","model":"m"}]}`},
	{"subagent/descriptor", lastBuild, `{"version":2,"mode":"one-shot","provider":"p"}`},
	{"feedback/record", lastBuild, `{"text":"t"}`},
	{"agent-preset/selected", lastBuild, `{"agentPreset":"p"}`},
	{"agent/inbox/spliced", lastBuild, `{"target":"next-turn","start":0,"removedCount":1,"inserted":[{"content":[{"type":"text","text":"t"}],"source":{"kind":"user"},"role":"user","id":"u"}],"outcome":"canceled"}`},
	{"tool-workflow/run-start", lastBuild, `{"runId":"r","name":"n"}`},
	{"tool-workflow/agent-start", lastBuild, `{"runId":"r","seq":1,"label":"l","phase":"p","childId":"c"}`},
	{"tool-workflow/agent-end", lastBuild, `{"runId":"r","seq":1,"outcome":"completed"}`},
	{"tool-workflow/run-end", lastBuild, `{"runId":"r","stopReason":"completed"}`},
	{"schedule/change", lastBuild, `{"version":1,"operation":"create","schedule":{"id":"i","kind":"after","prompt":"p","afterSeconds":9,"scheduledAt":"2026-08-12T00:00:00.000Z"}}`},
	{"schedule/change", lastBuild, `{"version":1,"operation":"create","schedule":{"id":"i","kind":"every","prompt":"p","everySeconds":9,"scheduledAt":"2026-08-12T00:00:00.000Z"}}`},
	{"schedule/change", lastBuild, `{"version":1,"operation":"delete","id":"i"}`},
	{"schedule/change", lastBuild, `{"version":1,"operation":"dispatch","id":"i","acceptedAt":"2026-08-12T00:00:00.000Z"}`},
	{"team/member", lastBuild, `{"version":1,"teamId":"t","member":{"id":"i","name":"n","description":"d","provider":"p","context":"fresh","phase":"provisioning"}}`},
	{"team/task", lastBuild, `{"version":1,"teamId":"t","task":{"id":"i","revision":1,"subject":"s","description":"d","status":"open","ownerId":"o","blockedBy":["b"],"writeScopes":[]}}`},
	{"team/message/queued", lastBuild, `{"version":1,"teamId":"t","message":{"id":"i","senderId":"s","senderName":"n","targetId":"g","delivery":"quiet","content":"c"}}`},
	{"team/message/delivered", lastBuild, `{"version":1,"teamId":"t","messageId":"m","targetId":"g"}`},
	{"goal/change", lastBuild, `{"kind":"goal/change","version":1,"operation":"create","goal":{"id":"g","revision":1},"roundsStarted":0,"createdAt":1,"updatedAt":1}`},
	{"goal/change", lastBuild, `{"kind":"goal/change","version":1,"operation":"clear","cleared":{"id":"g","revision":1},"clearedAt":1}`},
}
