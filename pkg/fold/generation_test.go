package fold

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

func TestExpandStream(t *testing.T) {
	for _, c := range []struct{ stream, want string }{
		{`[]`, ""},
		{`[{"type":"chunk","time":5,"chunk":{"type":"finish","reason":{"kind":"stop"}}}]`, `0/-1 @5 {"type":"finish","reason":{"kind":"stop"}}` + "\n"},
		{`[{"type":"text-chunks","time0":5,"index":0,"dt":[2,-3],"texts":["a","\n","c"]}]`,
			`0/0 @5 {"type":"text-delta","index":0,"text":"a"}` + "\n" + `0/1 @7 {"type":"text-delta","index":0,"text":"\n"}` + "\n" + `0/2 @4 {"type":"text-delta","index":0,"text":"c"}` + "\n"},
		{`[{"texts":["a"],"dt":[],"index":1,"time0":-5,"type":"reasoning-chunks"}]`, `0/0 @-5 {"type":"reasoning-delta","index":1,"text":"a"}` + "\n"},
		{`[{"type":"tool-call-chunks","time0":5,"index":0,"dt":[],"id":"c","name":"n","args":["{"]},{"type":"tool-call-chunks","time0":6,"index":0,"dt":[1],"id":"c","args":["}",""]}]`,
			`0/0 @5 {"type":"tool-call-delta","index":0,"id":"c","name":"n","argumentsDelta":"{"}` + "\n" +
				`1/0 @6 {"type":"tool-call-delta","index":0,"id":"c","argumentsDelta":"}"}` + "\n" + `1/1 @7 {"type":"tool-call-delta","index":0,"id":"c","argumentsDelta":""}` + "\n"},
		{`{}`, "the stream is an object, want an array\n"},
		{`[null,{"type":"chunk","time":1,"chunk":{"type":"usage"}}]`, "stream[0] is null, want an object\n" + `1/-1 @1 {"type":"usage"}` + "\n"},
		{`[{"type":7}]`, "stream[0].type is a number, want a string\n"},
		{`[{"type":"bytes"}]`, "stream[0].type is a string, want text-chunks, reasoning-chunks, tool-call-chunks or chunk\n"},
		{`[{"type":"chunk","time":1.5,"chunk":{}}]`, "stream[0].time is a number, want a whole number\n"},
		{`[{"type":"chunk","time":1}]`, "stream[0].chunk is absent, want an object\n"},
		{`[{"type":"chunk","time":1,"chunk":{},"x":1}]`, "stream[0] is an object, want exactly type, time and chunk\n"},
		{`[{"type":"text-chunks","time0":1,"index":0,"dt":[],"texts":["a","b"]}]`, "stream[0].dt is 0 long, want 1 gaps for 2 members\n"},
		{`[{"type":"text-chunks","time0":1,"index":0,"dt":[],"texts":[]}]`, "stream[0].texts is an array, want a non-empty array\n"},
		{`[{"type":"text-chunks","time0":1,"index":0,"dt":[1],"texts":["a",2]}]`, "stream[0].texts is an array, want an array of strings\n"},
		{`[{"type":"text-chunks","time0":1,"index":0,"dt":[1.5],"texts":["a","b"]}]`, "stream[0].dt is an array, want an array of whole numbers\n"},
		{`[{"type":"text-chunks","time0":9007199254740991,"index":0,"dt":[1],"texts":["a","b"]}]`, "stream[0].dt is an array, want gaps that keep the times safe integers\n"},
		{`[{"type":"text-chunks","time0":1,"index":0,"dt":[],"texts":["a"],"id":"c"}]`, "stream[0] is an object, want exactly the members of its type\n"},
		{`[{"type":"tool-call-chunks","time0":1,"index":0,"dt":[],"args":["a"]}]`, "stream[0].id is absent, want a string\n"},
		{`[{"type":"tool-call-chunks","time0":1,"index":0,"dt":[],"id":"c","texts":["a"]}]`, "stream[0].args is absent, want a non-empty array\n"},
	} {
		var got strings.Builder
		for ch, err := range ExpandStream([]byte(`{"turn":1,"stream":` + c.stream + `}`)) {
			if err != nil {
				fmt.Fprintln(&got, err)
				continue
			}
			if !jsjson.Canonical(ch.JSON) {
				t.Errorf("%s: %s is not canonical", c.stream, ch.JSON)
			}
			fmt.Fprintf(&got, "%d/%d @%d %s\n", ch.Record, ch.Member, ch.Time, ch.JSON)
		}
		if d := cmp.Diff(c.want, got.String()); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.stream, d)
		}
	}
	for range ExpandStream([]byte(`{"stream":[{"type":"text-chunks","time0":1,"index":0,"dt":[1],"texts":["a","b"]}]}`)) {
		break // stopping early is fine
	}
}

// FuzzExpandStream: whatever canonical value stands for a stream, expanding it ends
// and yields canonical chunks that the assembler takes or refuses.
func FuzzExpandStream(f *testing.F) {
	f.Add(`[{"type":"text-chunks","time0":5,"index":0,"dt":[2,-3],"texts":["a","\n","c"]},{"type":"chunk","time":1,"chunk":{"type":"finish","reason":{"kind":"stop"}}}]`)
	f.Add(`[{"type":"tool-call-chunks","time0":5,"index":0,"dt":[],"id":"c","name":"n","args":["{"]}]`)
	f.Add(`[{"type":"text-chunks","time0":9007199254740991,"index":0,"dt":[1],"texts":["a","b"]}]`)
	f.Add(`[[],{},null]`)
	f.Fuzz(func(t *testing.T, s string) {
		canon, _, err := jsjson.Stringify([]byte(s))
		if err != nil {
			return
		}
		data := append(append([]byte(`{"stream":`), canon...), '}')
		var a Assembler
		records := 0
		for ch, err := range ExpandStream(data) {
			if err != nil {
				continue
			}
			if !jsjson.Canonical(ch.JSON) {
				t.Fatalf("%s is not canonical", ch.JSON)
			}
			if ch.Record < 0 || ch.Record >= jsjson.Len(canon) {
				t.Fatalf("record %d of %d", ch.Record, jsjson.Len(canon))
			}
			records++
			a.Add(ch.JSON)
		}
		a.Result(ReplayTrimmed)
	})
}

// feed gives a fold of a generation its events, numbered from 0, and returns the
// bodies and grades of its requests.
func feed(t *testing.T, gen int64, events ...string) (out []string, f *Fold) {
	t.Helper()
	h := &logfmt.Header{Version: gen, Generation: gen, ID: "s"}
	f = New(h, Options{})
	take := func(rs []*Request) {
		for _, r := range rs {
			out = append(out, fmt.Sprintf("%s %v %v %s%s", r.Grade, r.Reasons, r.Assumptions, r.Candidate, r.AppendBody(nil)))
		}
	}
	for i, ev := range events {
		e := event([]byte(ev))
		e.Seq, e.Gen, e.Pos.Member = int64(i), uint8(gen), -1
		if e.Time == 0 {
			e.Time = int64(10 + i)
		}
		take(f.Add(e))
	}
	take(f.End())
	return out, f
}

const (
	stepOne  = `{"type":"step/start","data":{"turn":1,"step":1}}`
	answer1  = `{"type":"assistant/message","data":{"turn":1,"step":1,"message":{"role":"assistant","content":[{"type":"text","text":"a"}],"source":{"kind":"model","provider":"p","model":"m"},"id":"a"},"stream":[]},"surfaceOp":"append"}`
	userU    = `{"type":"user/message","data":{"content":[{"type":"text","text":"q"}],"source":{"kind":"user"},"role":"user","id":"u"},"surfaceOp":"append"}`
	headerXY = `{"type":"request/header","data":{"header":{"config":{"provider":"p","model":"m"},"tools":[{"name":"x"},{"name":"y"}]},"reason":"initial"}}`
)

// TestBodies: what a request is made of in each generation.
func TestBodies(t *testing.T) {
	system := `{"type":"system/message","data":{"turn":1,"step":1,"message":{"role":"system","content":[{"type":"text","text":"be brief"}],"source":{"kind":"system-prompt"},"id":"y"}},"surfaceOp":"append"}`
	header := `{"type":"request/header","data":{"header":{"config":{"provider":"p","model":"m"},"system":"be brief","tools":[{"name":"x"}]},"reason":"initial"}}`
	const u = `{"content":[{"type":"text","text":"q"}],"source":{"kind":"user"},"role":"user","id":"u"}`
	const y = `{"role":"system","content":[{"type":"text","text":"be brief"}],"source":{"kind":"system-prompt"},"id":"y"}`
	for gen, want := range map[int64]string{
		2: `exact [] [] {"provider":"p","model":"m","messages":[` + u + `],"system":"be brief","tools":[{"name":"x"}],"sessionId":"s"}`,
		3: `exact [] [] {"provider":"p","model":"m","messages":[` + y + `,` + u + `],"tools":[{"name":"x"}],"sessionId":"s"}`,
		4: `exact [] [tool-history] {"provider":"p","model":"m","messages":[` + y + `,` + u + `],"toolHistory":{"tools":[{"name":"x"}],"updates":[]},"tools":[{"name":"x"}],"sessionId":"s"}`,
	} {
		events := []string{stepOne, system, userU, header, answer1}
		if gen == 2 {
			events = []string{stepOne, userU, header, answer1}
		}
		got, f := feed(t, gen, events...)
		// The surface knows the fault of gen 3 and 4, a prompt in the header; the body does not hold it.
		if f.Mode() != SurfaceMode {
			t.Errorf("generation %d: mode %s", gen, f.Mode())
		}
		if d := cmp.Diff([]string{want}, got); d != "" {
			t.Errorf("generation %d (-want +got):\n%s", gen, d)
		}
	}
}

// TestToolHistory: how a request of generation 4 tells where its tools came from.
func TestToolHistory(t *testing.T) {
	header := func(reason, more string, names ...string) string {
		tools := ""
		for i, n := range names {
			if i > 0 {
				tools += ","
			}
			tools += n
		}
		return `{"type":"request/header","data":{"header":{"config":{"provider":"p","model":"m"},"tools":[` + tools + `]},"reason":"` + reason + `"` + more + `}}`
	}
	x, y, x2 := `{"name":"x"}`, `{"name":"y"}`, `{"name":"x","v":2}`
	developer := func(seq string, blocks string) string {
		return `{"type":"developer/message","data":{"turn":1,"step":1,"message":{"source":{"kind":"tool-registry"},"content":[` + blocks + `],"role":"developer","id":"d"}` + seq + `},"surfaceOp":"append"}`
	}
	add := func(n string) string { return `{"type":"tool-addition","toolName":"` + n + `"}` }
	remove := func(n string) string { return `{"type":"tool-removal","toolName":"` + n + `"}` }
	for _, c := range []struct {
		name   string
		events []string
		want   string // toolHistory
		grade  string
	}{
		{"one header", []string{header("initial", "", x)}, `{"tools":[{"name":"x"}],"updates":[]}`, "exact [] [tool-history]"},
		{"an addition", []string{header("initial", "", x), header("change", "", x, y), developer(`,"headerSeq":2`, add("y"))},
			`{"tools":[{"name":"x"}],"updates":[{"messageId":"d","additions":[{"name":"y"}]}]}`, "ambiguous [tool-history] []"},
		{"a removal", []string{header("initial", "", x, y), header("change", "", x), developer("", remove("y"))},
			`{"tools":[{"name":"x"},{"name":"y"}],"updates":[{"messageId":"d","additions":[]}]}`, "ambiguous [tool-history] []"},
		{"names that do not add up", []string{header("initial", "", x), header("change", "", x, y)},
			`{"tools":[{"name":"x"},{"name":"y"}],"updates":[]}`, "exact [] [tool-history]"},
		{"another series", []string{header("initial", "", x), header("change", "", x, y), developer(`,"headerSeq":2`, add("y")), header("series", "", x, y)},
			`{"tools":[{"name":"x"},{"name":"y"}],"updates":[]}`, "exact [] [tool-history]"},
		{"a header that starts a series", []string{header("initial", "", x), header("change", "", x, y), developer(`,"headerSeq":2`, add("y")), header("change", `,"startsSeries":true`, x, y)},
			`{"tools":[{"name":"x"},{"name":"y"}],"updates":[]}`, "exact [] [tool-history]"},
		{"a tool redefined", []string{header("initial", "", x), header("change", "", x2)},
			`{"tools":[{"name":"x","v":2}],"updates":[]}`, "exact [] [tool-history]"},
		{"an addition that nothing defines", []string{header("initial", "", x), developer(`,"headerSeq":1`, add("y"))},
			`{"tools":[{"name":"x"}],"updates":[{"messageId":"d","additions":[]}]}`, "ambiguous [tool-history] []"},
	} {
		got, _ := feed(t, 4, append(append([]string{stepOne}, c.events...), answer1)...)
		if len(got) != 1 {
			t.Fatalf("%s: %d requests", c.name, len(got))
		}
		i := strings.Index(got[0], `{"provider"`)
		grade, body := strings.TrimSuffix(got[0][:i], " "), got[0][i:]
		history := string(jsjson.Get([]byte(body), "toolHistory"))
		if history != c.want || grade != c.grade {
			t.Errorf("%s: %s %s\nwant %s %s", c.name, grade, history, c.grade, c.want)
		}
	}
}

// TestOffload: an image that is put away is marked in the requests that follow,
// and not in those before.
func TestOffload(t *testing.T) {
	image := func(n int) string {
		return fmt.Sprintf(`{"type":"image","attachment":{"attachmentId":"%d"}}`, n)
	}
	user := `{"type":"user/message","data":{"content":[` + image(0) + `,{"type":"text","text":"q"},` + image(1) + `],"source":{"kind":"user"},"role":"user","id":"u"},"surfaceOp":"append"}`
	result := `{"type":"tool/result","data":{"turn":1,"step":1,"message":{"source":{"kind":"tool","callId":"c"},"content":[{"type":"tool-result","toolCallId":"c","content":[` + image(2) + `,` + image(3) + `]}],"role":"user","id":"r"}},"surfaceOp":"append"}`
	offload := `{"type":"image/offload","data":{"targets":[{"seq":1,"imageIndexes":[1]},{"seq":2,"imageIndexes":[0]}]}}`
	failed := `{"type":"assistant/attempt","data":{"turn":1,"step":1,"stream":[]}}`
	got, f := feed(t, 3, stepOne, user, result, failed, offload, answer1)
	if len(got) != 2 {
		t.Fatalf("%d requests", len(got))
	}
	if strings.Contains(got[0], "offloaded") || strings.Contains(got[0], AssumeOffload) {
		t.Errorf("before: %s", got[0])
	}
	for _, want := range []string{`{"attachmentId":"0"}}`, `{"attachmentId":"1"},"offloaded":true}`, `{"attachmentId":"2"},"offloaded":true}`, `{"attachmentId":"3"}}`, AssumeOffload} {
		if !strings.Contains(got[1], want) {
			t.Errorf("after: no %s in %s", want, got[1])
		}
	}
	if n := len(f.Surface().Nodes()); n != 3 {
		t.Errorf("%d nodes", n)
	}
	for _, c := range []struct{ targets, want string }{
		{`[{"seq":1,"imageIndexes":[0,1]}]`, ""},
		{`[{"seq":1,"imageIndexes":[1,0]}]`, "data.targets[0] lists image indexes that do not rise"},
		{`[{"seq":1,"imageIndexes":[2]}]`, "data.targets[0] lists image 2 of seq 1, which has 2"},
		{`[{"seq":9,"imageIndexes":[0]}]`, "data.targets[0] names seq 9, which is not on the surface"},
		{`[{"seq":5,"imageIndexes":[0]}]`, "data.targets[0] names seq 5, which is assistant/message; expected user/message or tool/result"},
		{`[{"imageIndexes":[0]}]`, "data.targets[0] names no seq"},
	} {
		e := event([]byte(`{"type":"image/offload","data":{"targets":` + c.targets + `}}`))
		e.Seq, e.Gen = 6, 3
		msg := ""
		if faults := f.Surface().CheckOffload(e); len(faults) > 0 {
			msg = faults[0].Detail
		}
		if msg != c.want {
			t.Errorf("%s: %q, want %q", c.targets, msg, c.want)
		}
	}
}

// TestLateMessage: a message that is stamped after the answer began to come is
// doubted, since it may not have been in the request.
func TestLateMessage(t *testing.T) {
	settled := strings.Replace(answer1, `"stream":[]`, `"stream":[{"type":"text-chunks","time0":11,"index":0,"dt":[],"texts":["a"]}]`, 1)
	for at, want := range map[string]string{"11": "exact []", "12": "ambiguous [boundary]"} {
		user := strings.Replace(userU, `{"type"`, `{"time":`+at+`,"type"`, 1)
		got, _ := feed(t, 2, stepOne, strings.Replace(headerXY, "{", `{"time":10,`, 1), user, settled)
		if len(got) != 1 || !strings.HasPrefix(got[0], want) {
			t.Errorf("at %s: %v, want %s", at, got, want)
		}
	}
}

// TestSettledCandidates: a step without a settlement may have been sent.
func TestSettledCandidates(t *testing.T) {
	end := `{"type":"step/end","data":{"turn":1,"step":1}}`
	got, _ := feed(t, 2, stepOne, userU, headerXY, end)
	if len(got) != 1 || !strings.Contains(got[0], "ambiguous [dispatch-unknown] [] the step ends with neither message nor attempt") {
		t.Errorf("%v", got)
	}
	got, _ = feed(t, 2, answer1)
	if len(got) != 1 || !strings.HasPrefix(got[0], "ambiguous [header no-step]") {
		t.Errorf("outside a step: %v", got)
	}
}
