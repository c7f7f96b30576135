package invariants

import (
	"fmt"
	"strings"
	"testing"
)

// A form that was given up before the builds of the log is a finding, once. What a
// log inherited, and what was written before the newer builds came, is none.
func TestRetired(t *testing.T) {
	const (
		today  = `turn/start {"turn":1}`
		since  = "but earlier events of this log were written by builds since 08-05 22:13"
		op     = "\t,\"surfaceOp\":\"append\""
		legacy = `user/message {"content":[{"type":"text","text":"q"}],"source":{"kind":"user"}}` + op
		old    = `user/message {"content":[],"source":{"kind":"user"},"envelope":{"displayContent":[],"prefixContexts":[]},"meta":1}` + op
	)
	child := strings.Replace(header, `"delegationDepth":0`, `"parentSession":"p","seedLength":2,"delegationDepth":0`, 1)
	for _, c := range []struct {
		name, header string
		events       []string
		want         string // findings of the rules about forms
	}{
		{"prompt", header, []string{today, legacy}, "EVT-RETIRED warning 1: user/message has a form that was given up on 07-28 19:39, " + since},
		{"answer", header, []string{today, `assistant/message {"turn":1,"step":1,"content":[],"provenance":{"provider":"p","model":"m"}}` + op},
			"EVT-RETIRED warning 1: assistant/message has a form that was given up on 07-28 19:39, " + since},
		{"result", header, []string{today, `tool/result {"turn":1,"step":1,"callId":"c","content":[],"isError":false}` + op},
			"EVT-RETIRED warning 1: tool/result has a form that was given up on 07-28 19:39, " + since},
		{"trigger", header, []string{today, `turn/end {"turn":1,"reason":{"kind":"completed"}}`, `turn/start {"turn":2,"trigger":{"kind":"continuation"}}`},
			"EVT-RETIRED warning 2: turn/start has a form that was given up on 08-05 22:13, " + since},
		{"disposed", header, []string{today, `turn/end {"turn":1,"reason":{"kind":"disposed"}}`},
			"EVT-RETIRED warning 1: turn/end has a form that was given up on 08-05 22:13, " + since},
		{"error with a step", header, []string{today, `turn/end {"turn":1,"reason":{"kind":"error","step":1,"message":"m"}}`},
			"EVT-RETIRED warning 1: turn/end has a form that was given up on 08-05 22:13, " + since},
		{"prefix", header, []string{today, `request/header {"header":{"config":{"provider":"p","model":"m"},"messagePrefix":[{"role":"user","content":[]}]},"reason":"initial"}`},
			"EVT-RETIRED warning 1: request/header has a form that was given up on 07-27 22:39, " + since},
		{"a type that went is said to be that", header, []string{today, `todo/write {"todos":[]}`, `steering/message {"turn":1,"content":[],"source":{"kind":"user"}}` + op}, ""},
		{"what another rule says is not said twice", header, []string{today, `assistant/message {"turn":1,"step":1,"content":[]}` + op},
			"MSG-SHAPE error 1: message of assistant/message is absent, expected an identified message from 07-28 19:39"},
		{"summary of a sub-call", header, []string{today, `tool/code-dispatch {"rootCallId":"c","parentCallId":"c","subCallId":"d","name":"n","arguments":{},"isError":false,"resultSummary":"s","content":[]}`},
			`EVT-SHAPE warning 1: resultSummary of tool/code-dispatch is "s", but builds since 07-27 00:00, which wrote this, have no such member`},
		{"image by url", header, []string{today, `user/message {"content":[{"type":"image","url":"u","attachment":{"attachmentId":"sha256:0","mediaType":"image/png","bytes":1,"width":1,"height":1}}],"source":{"kind":"user"},"role":"user","id":"u"}` + op},
			`EVT-SHAPE warning 1: content[0].url of user/message is "u", but builds since 08-11 00:00, which wrote this, have no such member`},
		{"envelope and meta", header, []string{today, old},
			"MSG-SHAPE warning 1: envelope of user/message is {\"displayContent\":[],\"prefixContexts\":[]}, but builds since 07-27 22:39, which wrote this, have no such member\n" +
				"MSG-SHAPE warning 1: meta of user/message is 1, but builds since 07-27 22:39, which wrote this, have no such member"},
		{"in its time", header, []string{`turn/start {"turn":1,"trigger":{"kind":"continuation"}}`, old}, ""},
		{"resumed by a newer build", header, []string{`turn/start {"turn":1,"trigger":{"kind":"continuation"}}`, legacy, `turn/end {"turn":1,"reason":{"kind":"completed"}}`, `session/end-seed {}`, `turn/start {"turn":2}`}, ""},
		{"inherited", child, []string{`user/message {"content":[],"source":{"kind":"user"},"role":"user","id":"u"}` + op, legacy}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := c.header + eventLines(c.events...)
			if c.name == "image by url" {
				// A preset dates the file: only the day of the new image is known.
				log = strings.Replace(log, `"delegationDepth":0`, `"delegationDepth":0,"agentPreset":"a"`, 1) + `{"type":"tool-workflow/run-start","seq":2,"time":12,"data":{"runId":"r","name":"n"}}` + "\n" +
					strings.Replace(strings.SplitAfter(log, "\n")[2], `"seq":1,"time":11`, `"seq":3,"time":13`, 1)
				c.want = strings.Replace(c.want, "warning 1", "warning 3", 1)
			}
			var got []string
			for _, f := range judge(t, []byte(log), Options{}).Findings {
				if f.Rule == "EVT-RETIRED" || f.Rule == "EVT-SHAPE" || f.Rule == "MSG-SHAPE" {
					got = append(got, fmt.Sprintf("%s %s %d: %s", f.Rule, f.Severity, f.Seq, f.Message))
				}
			}
			if got := strings.Join(got, "\n"); got != c.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, c.want)
			}
			if c.name != "inherited" {
				for _, f := range judge(t, []byte(log), Options{AsLoaded: true}).Findings {
					if f.Rule == "EVT-RETIRED" {
						t.Errorf("as loaded: %s", f.Message)
					}
				}
			}
		})
	}
}
