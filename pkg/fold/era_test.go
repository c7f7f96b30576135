package fold

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

func TestEventEras(t *testing.T) {
	all := Eras{E0, E13}
	cases := []struct {
		event string
		want  Eras
	}{
		{`{"type":"turn/start","data":{"turn":1}}`, Eras{E10, E13}},
		{`{"type":"turn/start","data":{"turn":1,"trigger":{"kind":"message"}}}`, Eras{E0, E9}},
		{`{"type":"turn/start","data":{"turn":1,"trigger":{"kind":"session-title"}}}`, Eras{E6, E8}},
		{`{"type":"turn/start","data":{"turn":1,"trigger":{"kind":"retry"}}}`, Eras{E7, E9}},
		{`{"type":"turn/end","data":{"turn":1,"reason":{"kind":"completed"}}}`, all},
		{`{"type":"turn/end","data":{"turn":1,"reason":{"kind":"blocked"}}}`, Eras{E10, E13}},
		{`{"type":"turn/end","data":{"turn":1,"reason":{"kind":"disposed"}}}`, Eras{E0, E9}},
		{`{"type":"turn/end","data":{"turn":1,"reason":{"kind":"rejected"}}}`, Eras{E2, E7}},
		{`{"type":"turn/end","data":{"turn":1,"reason":{"kind":"aborted"}}}`, Eras{E0, E9}},
		{`{"type":"turn/end","data":{"turn":1,"reason":{"kind":"aborted","reason":"x"}}}`, Eras{E0, E6}},
		{`{"type":"turn/end","data":{"turn":1,"reason":{"kind":"aborted","reason":{"kind":"user"}}}}`, Eras{E10, E13}},
		{`{"type":"turn/end","data":{"turn":1,"reason":{"kind":"error","message":"x"}}}`, Eras{E0, E0}},
		{`{"type":"turn/end","data":{"turn":1,"reason":{"kind":"error","step":1,"message":"x"}}}`, Eras{E1, E9}},
		{`{"type":"turn/end","data":{"turn":1,"reason":{"kind":"error","step":1,"failure":{}}}}`, Eras{E6, E9}},
		{`{"type":"turn/end","data":{"turn":1,"reason":{"kind":"error","error":{}}}}`, Eras{E10, E13}},
		{`{"type":"user/message","data":{"content":[],"source":{"kind":"user"}}}`, Eras{E0, E8}},
		{`{"type":"user/message","data":{"content":[],"source":{"kind":"user"}},"surfaceOp":"append"}`, Eras{E2, E8}},
		{`{"type":"user/message","data":{"content":[],"source":{},"envelope":{}},"surfaceOp":"append"}`, Eras{E6, E7}},
		{`{"type":"user/message","data":{"content":[],"source":{},"role":"user","id":"u"},"surfaceOp":"append"}`, Eras{E9, E13}},
		{`{"type":"context/message","data":{"content":[],"source":{},"envelope":"raw"},"surfaceOp":"append"}`, Eras{E4, E5}},
		{`{"type":"steering/message","data":{"turn":1,"message":{}},"surfaceOp":"append"}`, Eras{E9, E9}},
		{`{"type":"steering/message","data":{"turn":1,"content":[]},"surfaceOp":"append"}`, Eras{E2, E8}},
		{`{"type":"assistant/message","data":{"content":[]}}`, Eras{E0, E4}},
		{`{"type":"assistant/message","data":{"content":[],"usage":{}}}`, Eras{E1, E4}},
		{`{"type":"assistant/message","data":{"content":[],"provenance":{}}}`, Eras{E5, E8}},
		{`{"type":"assistant/message","data":{"message":{}},"sourceEventSeqs":[]}`, Eras{E9, E13}},
		{`{"type":"assistant/message","data":{"content":[],"provenance":{}},"sourceEventSeqs":[]}`, Eras{E5, E8}},
		{`{"type":"assistant/message","data":{"message":{},"interrupted":true}}`, Eras{E12, E13}},
		{`{"type":"tool/result","data":{"content":[],"error":{"code":"interrupted"}}}`, Eras{E0, E6}},
		{`{"type":"tool/result","data":{"message":{},"error":{"code":"TOOL_NOT_STARTED"}}}`, Eras{E9, E13}},
		{`{"type":"usage","data":{}}`, Eras{E0, E0}},
		{`{"type":"request/header","data":{"header":{"config":{"model":"m"}},"reason":"initial"}}`, Eras{E3, E4}},
		{`{"type":"request/header","data":{"header":{"config":{"provider":"p"}},"reason":"initial"}}`, Eras{E5, E13}},
		{`{"type":"request/header","data":{"header":{"config":{"provider":"p"},"messagePrefix":[]},"reason":"change"}}`, Eras{E5, E7}},
		{`{"type":"request/header","data":{"header":{"config":{"provider":"p"},"adapterDefaults":{}},"reason":"resume"}}`, Eras{E9, E13}},
		{`{"type":"request/header","data":{"header":{"config":{"model":"m"}},"reason":"fallback"}}`, Eras{E3, E4}},
		{`{"type":"request/header-delta","data":{}}`, Eras{E3, E5}},
		{`{"type":"request/header-delta","data":{"messagePrefix":[]}}`, Eras{E4, E5}},
		{`{"type":"assistant/chunk","data":{"turn":1,"step":1,"chunk":{"type":"finish","reason":{"kind":"stop"}}}}`, all},
		{`{"type":"assistant/chunk","data":{"turn":1,"step":1,"chunk":{"type":"finish","reason":{"kind":"error","message":"m"}}}}`, Eras{E0, E6}},
		{`{"type":"assistant/chunk","data":{"turn":1,"step":1,"chunk":{"type":"finish","reason":{"kind":"error","failure":{}}}}}`, Eras{E6, E13}},
		{`{"type":"compact/summary","data":{"summary":[]}}`, Eras{E2, E2}},
		{`{"type":"compact/summary","data":{"summary":[],"model":"m"}}`, Eras{E3, E4}},
		{`{"type":"compact/summary","data":{"summary":[],"provider":"p","model":"m"}}`, Eras{E5, E10}},
		{`{"type":"compact/start","data":{"turn":1}}`, Eras{E2, E10}},
		{`{"type":"compact/start","data":{"turn":null}}`, Eras{E9, E10}},
		{`{"type":"compact/start","data":{"compactionId":"k","turn":1}}`, Eras{E10, E10}},
		{`{"type":"compaction/start","data":{"compactionId":"k","turn":1}}`, Eras{E11, E13}},
		{`{"type":"llm/retry","data":{"turn":1,"step":1,"retry":1}}`, Eras{E6, E7}},
		{`{"type":"llm/retry","data":{"turn":1,"step":1,"mode":"normal","retry":1}}`, Eras{E7, E10}},
		{`{"type":"llm/retry","data":{"retryId":"r","mode":"normal","retry":1}}`, Eras{E10, E13}},
		{`{"type":"session/end-seed","data":{}}`, Eras{E9, E13}},
		{`{"type":"gull/seen","data":{}}`, all},
		{`{"type":"user/message","data":null}`, all},
	}
	for _, c := range cases {
		e := event([]byte(c.event))
		if got := EventEras(e); got != c.want {
			t.Errorf("%s: E%d to E%d, want E%d to E%d", c.event, got.Min, got.Max, c.want.Min, c.want.Max)
		}
	}
}

// TestDialectRange goes through a log that three builds wrote: the oldest
// possible build only rises, the newest possible one starts anew with a process.
func TestDialectRange(t *testing.T) {
	steps := []struct {
		event   string
		want    Eras
		process int
	}{
		{`{"type":"turn/start","seq":0,"data":{"turn":1,"trigger":{"kind":"message"}}}`, Eras{E0, E9}, 0},
		{`{"type":"user/message","seq":1,"data":{"content":[]},"surfaceOp":"append"}`, Eras{E2, E8}, 0},
		{`{"type":"request/header","seq":2,"data":{"header":{"config":{"model":"m"}},"reason":"initial"}}`, Eras{E3, E4}, 1},
		{`{"type":"turn/end","seq":3,"data":{"turn":1,"reason":{"kind":"completed"}}}`, Eras{E3, E4}, 1},
		// A build of E5 to E8 resumes; the log shows it with its header.
		{`{"type":"turn/start","seq":4,"data":{"turn":2,"trigger":{"kind":"message"}}}`, Eras{E3, E4}, 1},
		{`{"type":"user/message","seq":5,"data":{"content":[]},"surfaceOp":"append"}`, Eras{E3, E4}, 1},
		{`{"type":"request/header","seq":6,"data":{"header":{"config":{"provider":"p"}},"reason":"resume"}}`, Eras{E5, E8}, 2},
		{`{"type":"llm/retry","seq":7,"data":{"turn":2,"step":1,"retry":1}}`, Eras{E6, E7}, 2},
		{`{"type":"turn/end","seq":8,"data":{"turn":2,"reason":{"kind":"completed"}}}`, Eras{E6, E7}, 2},
		// One of E10 or later resumes, and says so first.
		{`{"type":"session/end-seed","seq":9,"data":{}}`, Eras{E9, E13}, 3},
		{`{"type":"turn/start","seq":10,"data":{"turn":3}}`, Eras{E10, E13}, 3},
		{`{"type":"request/header","seq":11,"data":{"header":{"config":{"provider":"p"}},"reason":"resume"}}`, Eras{E10, E13}, 3},
		{`{"type":"compact/start","seq":12,"data":{"compactionId":"k","turn":3}}`, Eras{E10, E10}, 3},
		// What contradicts it does not take it back.
		{`{"type":"turn/start","seq":13,"data":{"turn":4,"trigger":{"kind":"message"}}}`, Eras{E10, E10}, 3},
	}
	d := NewDialect(nil)
	for _, s := range steps {
		got := d.Add(event([]byte(s.event)))
		if got != s.want || got != d.Eras() || d.Process() != s.process {
			t.Errorf("%s: E%d to E%d in process %d, want E%d to E%d in %d", s.event, got.Min, got.Max, d.Process(), s.want.Min, s.want.Max, s.process)
		}
	}
}

func TestDialectHints(t *testing.T) {
	depth, length, preset, origin := int64(0), int64(1), "p", "subagent"
	cases := []struct {
		name   string
		header logfmt.Header
		event  string
		want   Eras
	}{
		{"version 1", logfmt.Header{Version: 1, Fault: logfmt.HeaderJune}, `{"type":"step/start"}`, Eras{E0, E0}},
		{"generation 1", logfmt.Header{Version: 1, Generation: 1}, `{"type":"step/start"}`, Eras{E13, E13}},
		{"no depth", logfmt.Header{Fault: logfmt.HeaderNoDepth}, `{"type":"step/start"}`, Eras{E0, E6}},
		{"depth", logfmt.Header{DelegationDepth: &depth}, `{"type":"step/start"}`, Eras{E6, E13}},
		{"origin", logfmt.Header{DelegationDepth: &depth, Origin: &origin}, `{"type":"step/start"}`, Eras{E9, E13}},
		{"preset", logfmt.Header{DelegationDepth: &depth, AgentPreset: &preset}, `{"type":"step/start"}`, Eras{E10, E13}},
		{"a database keeps no depth of 0", logfmt.Header{}, `{"type":"step/start"}`, Eras{E0, E13}},
		{"seed length", logfmt.Header{SeedLength: &length, Fault: logfmt.HeaderNoDepth}, `{"type":"step/start"}`, Eras{E1, E6}},
		{"depth yields to a delta", logfmt.Header{DelegationDepth: &depth}, `{"type":"request/header-delta"}`, Eras{E3, E5}},
		{"no depth yields to an identity", logfmt.Header{Fault: logfmt.HeaderNoDepth}, `{"type":"assistant/message","data":{"message":{}}}`, Eras{E9, E13}},
	}
	for _, c := range cases {
		d := NewDialect(&c.header)
		if got := d.Add(event([]byte(c.event))); got != c.want {
			t.Errorf("%s: E%d to E%d, want E%d to E%d", c.name, got.Min, got.Max, c.want.Min, c.want.Max)
		}
	}
}

// TestRecordedEras holds every event of every recorded session to the build that
// wrote it.
func TestRecordedEras(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	builds := map[string]Era{"a": E2, "b": E3, "b2": E4, "c": E6}
	events := 0
	for _, part := range []string{"head", "july"} {
		for _, r := range runs(t, filepath.Join(dir, part)) {
			truth := E13
			if r.july {
				name, _, _ := strings.Cut(r.name, "-")
				truth = builds[name]
			}
			l := openLog(t, r.log)
			d := NewDialect(l.Header)
			for e := range l.Events() {
				got := d.Add(e)
				if got.Min > truth || got.Max < truth {
					t.Errorf("%s: seq %d %s: E%d to E%d, but E%d wrote it", r.name, e.Seq, e.Type, got.Min, got.Max, truth)
					break
				}
				if _, known := TypeEras(e.Type); !known && !e.Ignorable {
					t.Errorf("%s: seq %d: type %q is known to no era", r.name, e.Seq, e.Type)
				}
				events++
			}
		}
	}
	t.Logf("%d events dated", events)
}
