package invariants

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

// Logs of one turn that the cases below break: of the newest dialect, and of the one
// between the first header and the messages with ids.
var (
	modern = []string{
		0:  `turn/start {"turn":1}`,
		1:  `step/start {"turn":1,"step":1}`,
		2:  `user/message {"content":[{"type":"text","text":"q"}],"source":{"kind":"user"},"role":"user","id":"u1"}` + "\t" + `,"surfaceOp":"append"`,
		3:  `request/header {"header":{"config":{"provider":"p","model":"m"}},"reason":"initial"}`,
		4:  `assistant/chunk {"turn":1,"step":1,"chunk":{"type":"block-start","index":0,"blockType":"text"}}`,
		5:  `assistant/chunk {"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"hm"}}`,
		6:  `assistant/chunk {"turn":1,"step":1,"chunk":{"type":"block-end","index":0,"block":{"type":"text","text":"hm"}}}`,
		7:  `assistant/chunk {"turn":1,"step":1,"chunk":{"type":"block-start","index":1,"blockType":"tool-call"}}`,
		8:  `assistant/chunk {"turn":1,"step":1,"chunk":{"type":"tool-call-delta","index":1,"id":"c1","name":"run","argumentsDelta":"{}"}}`,
		9:  `assistant/chunk {"turn":1,"step":1,"chunk":{"type":"block-end","index":1,"block":{"type":"tool-call","id":"c1","name":"run","arguments":"{}"}}}`,
		10: `assistant/chunk {"turn":1,"step":1,"chunk":{"type":"usage","usage":{"inputTokens":3,"outputTokens":2}}}`,
		11: `assistant/chunk {"turn":1,"step":1,"chunk":{"type":"finish","reason":{"kind":"tool-calls"}}}`,
		12: `assistant/message {"turn":1,"step":1,"message":{"role":"assistant","content":[{"type":"text","text":"hm"},{"type":"tool-call","id":"c1","name":"run","arguments":"{}"}],"source":{"kind":"model","provider":"p","model":"m"},"id":"a1"},"usage":{"inputTokens":3,"outputTokens":2}}` + "\t" + `,"sourceEventSeqs":[4,5,6,7,8,9,10,11],"surfaceOp":"append"`,
		13: `tool/call {"turn":1,"step":1,"callId":"c1","name":"run","arguments":"{}"}`,
		14: `tool/result {"turn":1,"step":1,"message":{"role":"user","content":[{"type":"tool-result","toolCallId":"c1","content":[{"type":"text","text":"ok"}]}],"source":{"kind":"tool","callId":"c1"},"id":"r1"}}` + "\t" + `,"sourceEventSeqs":[13],"surfaceOp":"append"`,
		15: `step/end {"turn":1,"step":1}`,
		16: `step/start {"turn":1,"step":2}`,
		17: `assistant/chunk {"turn":1,"step":2,"chunk":{"type":"finish","reason":{"kind":"stop"}}}`,
		18: `assistant/message {"turn":1,"step":2,"message":{"role":"assistant","content":[],"source":{"kind":"model","provider":"p","model":"m"},"id":"a2"}}` + "\t" + `,"sourceEventSeqs":[17],"surfaceOp":"append"`,
		19: `step/end {"turn":1,"step":2}`,
		20: `turn/end {"turn":1,"reason":{"kind":"completed"}}`,
	}
	early = []string{
		0:  `turn/start {"turn":1,"trigger":{"kind":"message","source":{"kind":"user"}}}`,
		1:  `user/message {"content":[{"type":"text","text":"q"}],"source":{"kind":"user"}}` + "\t" + `,"surfaceOp":"append"`,
		2:  `step/start {"turn":1,"step":1}`,
		3:  `request/header {"header":{"config":{"model":"m"},"system":"s"},"reason":"initial"}`,
		4:  `assistant/chunk {"turn":1,"step":1,"chunk":{"type":"block-start","index":0,"blockType":"text"}}`,
		5:  `assistant/chunk {"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"hm"}}`,
		6:  `assistant/chunk {"turn":1,"step":1,"chunk":{"type":"block-end","index":0,"block":{"type":"text","text":"hm"}}}`,
		7:  `assistant/chunk {"turn":1,"step":1,"chunk":{"type":"finish","reason":{"kind":"stop"}}}`,
		8:  `assistant/message {"turn":1,"step":1,"content":[{"type":"text","text":"hm"}]}` + "\t" + `,"sourceEventSeqs":[4,5,6,7],"surfaceOp":"append"`,
		9:  `step/end {"turn":1,"step":1}`,
		10: `turn/end {"turn":1,"reason":{"kind":"completed"}}`,
	}
)

// A breach changes a log in some places.
type breach struct {
	rule string // of which the findings are listed
	name string
	do   func(l []string) []string
}

// in replaces text in an event, which must hold it.
func in(i int, old, new string) func([]string) []string {
	return func(l []string) []string {
		if !strings.Contains(l[i], old) {
			panic(fmt.Sprintf("event %d has no %s", i, old))
		}
		l[i] = strings.Replace(l[i], old, new, 1)
		return l
	}
}

// at puts events before the one that stands at i.
func at(i int, events ...string) func([]string) []string {
	return func(l []string) []string { return slices.Insert(l, i, events...) }
}

// drop takes events away.
func drop(from, to int) func([]string) []string {
	return func(l []string) []string { return slices.Delete(l, from, to) }
}

func all(steps ...func([]string) []string) func([]string) []string {
	return func(l []string) []string {
		for _, s := range steps {
			l = s(l)
		}
		return l
	}
}

const (
	cmpStart   = `compaction/start {"turn":null,"compactionId":"k","trigger":"manual"}`
	cmpSummary = `compaction/summary {"compactionId":"k","summary":[{"type":"text","text":"s"}]}`
	cmpEnd     = `compaction/end {"turn":null,"compactionId":"k","error":{"name":"E","message":"m"}}`
)

var breaches = map[string][]breach{
	"modern": {
		{"HDR-SHAPE", "data is no object", in(3, `{"header":{"config":{"provider":"p","model":"m"}},"reason":"initial"}`, `[]`)},
		{"HDR-SHAPE", "reason is no string", in(3, `"reason":"initial"`, `"reason":7`)},
		{"HDR-SHAPE", "header is no object", in(3, `{"config":{"provider":"p","model":"m"}}`, `[]`)},
		{"HDR-SHAPE", "system is no string", in(3, `"m"}}`, `"m"},"system":5}`)},
		{"HDR-SHAPE", "a tool without name", in(3, `"m"}}`, `"m"},"tools":[{"name":5,"description":"d","parameters":{}}]}`)},
		{"HDR-SHAPE", "config is no object", in(3, `{"provider":"p","model":"m"}`, `[]`)},
		{"HDR-SHAPE", "adapterDefaults is no object", in(3, `"m"}}`, `"m"},"adapterDefaults":[]}`)},
		{"HDR-SHAPE", "a default that is not true", in(3, `"m"}}`, `"m","maxTokens":5},"adapterDefaults":{"maxTokens":false}}`)},
		{"HDR-INITIAL", "initial twice", at(17, `request/header {"header":{"config":{"provider":"p","model":"n"}},"reason":"initial"}`)},
		{"HDR-INITIAL", "change first", in(3, `initial`, `change`)},
		{"HDR-INITIAL", "resume first", in(3, `initial`, `resume`)},
		{"HDR-INITIAL", "change of a new process", at(17, `session/end-seed {}`, `request/header {"header":{"config":{"provider":"p","model":"n"}},"reason":"change"}`)},
		{"HDR-INITIAL", "resume of no new process", at(17, `request/header {"header":{"config":{"provider":"p","model":"n"}},"reason":"resume"}`)},
		{"HDR-NOOP", "nothing changed", at(17, `request/header {"header":{"config":{"provider":"p","model":"m"}},"reason":"change"}`)},
		{"CALL-ID", "no string", in(12, `"id":"c1"`, `"id":1`)},
		{"CALL-ID", "empty", in(12, `"id":"c1"`, `"id":""`)},
		{"LOG-TYPE", "of a development branch", at(21, `sandbox/acl-session {}`)},
		{"LOG-TYPE", "of a later generation", at(21, `image/offload {"targets":[]}`)},
		{"LOG-ENV", "ignorable is false", in(19, `{"turn":1,"step":2}`, `{"turn":1,"step":2}`+"\t"+`,"ignorable":false`)},
		{"EVT-SHAPE", "data is no object", in(13, `{"turn":1,"step":1,"callId":"c1","name":"run","arguments":"{}"}`, `[1]`)},
		{"EVT-SHAPE", "a further key of turn/end", in(20, `{"turn":1,`, `{"turn":1,"extra":1,`)},
		{"EVT-SHAPE", "a cause that is no object", in(20, `"completed"`, `"aborted","reason":"x"`)},
		{"MSG-SHAPE", "a prompt whose data is no object", in(2, `{"content":[{"type":"text","text":"q"}],"source":{"kind":"user"},"role":"user","id":"u1"}`, `[]`)},
		{"MSG-SHAPE", "a result without message", in(14, `"message":`, `"massage":`)},
		{"MSG-SHAPE", "a message that is no object", in(12, `"message":{`, `"message":7,"was":{`)},
		{"MSG-SHAPE", "a block of another type", in(14, `"type":"tool-result"`, `"type":"text"`)},
		{"STREAM-END", "a block ends twice", all(at(7, `assistant/chunk {"turn":1,"step":1,"chunk":{"type":"block-end","index":0,"block":{"type":"text","text":"hm"}}}`))},
		{"STEP-OPEN", "no turn is open", at(0, `step/start {"turn":1,"step":1}`)},
		{"STEP-OPEN", "of another turn", in(16, `"turn":1`, `"turn":2`)},
		{"STEP-OPEN", "inside another step", drop(15, 16)},
		{"CHUNK-CITE", "cites nothing", in(12, `"sourceEventSeqs":[4,5,6,7,8,9,10,11],`, ``)},
		{"CHUNK-CITE", "cites what is not its own", in(12, `4,5,6`, `2,4,5,6`)},
		{"CHUNK-CITE", "goes on", all(in(14, `[13]`, `[14]`), at(12, `todo/write {"todos":[]}`), in(13, `10,11]`, `10,11,12]`))},
		{"CHUNK-CITE", "no chunk came", all(drop(17, 18), in(17, `[17]`, `[16]`))},
		{"CHUNK-ASM", "another block", in(12, `"text":"hm"`, `"text":"ha"`)},
		{"CHUNK-ASM", "cancelled, and said nothing", all(in(18, `"content":[]`, `"content":[{"type":"text","text":"x"}]`), in(18, `"id":"a2"}}`, `"id":"a2"},"interrupted":true}`), in(17, `{"type":"finish","reason":{"kind":"stop"}}`, `{"type":"block-start","index":0,"blockType":"text"}`))},
		{"CHUNK-ASM", "a member more", in(12, `"text":"hm"`, `"text":"hm","more":1`)},
		{"CHUNK-ASM", "cancelled, with a state", all(in(18, `"content":[]`, `"content":[{"type":"text","text":"x"}]`), in(18, `"m"},"id":"a2"}}`, `"m","replayState":{}},"id":"a2"},"interrupted":true}`), in(17, `{"type":"finish","reason":{"kind":"stop"}}`, `{"type":"text-delta","index":0,"text":"x"}`))},
		{"CHUNK-USAGE", "left out", in(12, `,"usage":{"inputTokens":3,"outputTokens":2}`, ``)},
		{"CALL-MATCH", "run twice", at(15, `tool/call {"turn":1,"step":1,"callId":"c1","name":"run","arguments":"{}"}`)},
		{"CMP-PAIR", "summed up twice", at(21, cmpStart, cmpSummary, cmpSummary, cmpEnd)},
		{"CMP-PAIR", "a summary alone", at(21, cmpSummary, cmpEnd)},
		{"CMP-PAIR", "ends for another turn", at(21, cmpStart, cmpSummary, strings.Replace(cmpEnd, "null", "1", 1))},
		{"CMP-PAIR", "ends alone", at(21, cmpEnd)},
		{"CMP-OWNER", "of another turn", at(16, strings.Replace(cmpStart, "null", "3", 1), cmpEnd)},
		{"CMP-OWNER", "of no turn inside one", at(16, cmpStart, cmpEnd)},
		{"CMP-OWNER", "a turn ends while it is open", at(20, strings.Replace(cmpStart, "null", "1", 1))},
	},
	"early": {
		{"LOG-ENV", "a key outside the envelope", in(0, `}}}`, `}}}`+"\t"+`,"extra":1`)},
		{"LOG-ENV", "a minus zero", in(3, `"model":"m"`, `"model":"m","t":-0`)},
		{"SURF-OP", "a replace with a key more", at(2, `user/message {"content":[{"type":"text","text":"q"}],"source":{"kind":"user"}}`+"\t"+`,"sourceEventSeqs":[1],"surfaceOp":{"op":"replace","start":1,"end":1,"by":0}`)},
		{"HDR-PLACE", "two in a step", at(4, `request/header {"header":{"config":{"model":"n"}},"reason":"fallback"}`)},
		{"HDR-NOOP", "a fallback to the same", at(4, `request/header {"header":{"config":{"model":"m"},"system":"s"},"reason":"fallback"}`)},
		{"HDR-NOOP", "a fallback that a delta could say", all(at(4, `request/header {"header":{"config":{"model":"n"},"system":"s"},"reason":"fallback"}`))},
		{"HDR-INITIAL", "fallback first", in(3, `initial`, `fallback`)},
		{"HDR-DELTA", "a key of no delta", at(4, `request/header-delta {"delta":{}}`)},
		{"HDR-DELTA", "keeps lines that are not there", at(4, `request/header-delta {"system":{"keepStart":4,"keepEnd":0,"insert":[]}}`)},
		{"HDR-NOOP", "a delta of nothing", at(4, `request/header-delta {}`)},
		{"HDR-NOOP", "a delta that changes nothing", at(4, `request/header-delta {"config":{"model":"m"}}`)},
		{"CHUNK-CITE", "an empty list", in(8, `[4,5,6,7]`, `[]`)},
		{"CHUNK-CITE", "an empty list where no chunk came", all(drop(4, 8), in(4, `[4,5,6,7]`, `[]`), in(3, `{"model":"m"}`, `{"provider":"p","model":"m"}`), in(3, `initial`, `fallback`))},
		{"MSG-SHAPE", "a provenance that is no object", in(8, `"hm"}]`, `"hm"}],"provenance":[]`)},
		{"MSG-SHAPE", "no provider in builds that name it", in(3, `{"model":"m"}`, `{"provider":"p","model":"m"}`)},
	},
}

// laterBreaches change sound logs of later generations, which are those of pairs. A log
// is written without seqs and times, like the others.
var laterBreaches = map[string][]breach{
	"RETRY-v2": {
		{"RETRY", "outside any turn", func(l []string) []string { return append(l, l[5]) }},
		{"RETRY", "of another step", in(5, `"step":1`, `"step":2`)},
		{"RETRY", "of another provider", in(5, `"provider":"p"`, `"provider":"o"`)},
		{"RETRY", "another id in the chain", func(l []string) []string {
			return slices.Insert(l, 7, l[4], in(0, `"retry":1`, `"retry":2`)([]string{in(0, `"y1"`, `"y2"`)([]string{l[5]})[0]})[0])
		}},
		{"RETRY", "an id of another policy", func(l []string) []string {
			return slices.Insert(l, 7, l[4], in(0, `"k"`, `"k2"`)([]string{l[5]})[0])
		}},
		{"RETRY-START", "twice", func(l []string) []string { return slices.Insert(l, 7, l[6]) }},
		{"RETRY-START", "in another step", in(6, `"step":1`, `"step":2`)},
	},
	"TITLE-v2": {
		{"TITLE", "of nobody, and of no message", in(7, `[2]`, `[]`)},
		{"TITLE", "of the user, from messages", in(7, `fallback`, `user`)},
		{"TITLE", "a message twice", in(7, `[2]`, `[2,2]`)},
		{"TITLE", "a message that is none", in(7, `[2]`, `[3]`)},
	},
	"CMD-v2": {
		{"CMD", "twice", func(l []string) []string { return append(l, l[0]) }},
		{"CMD", "failed, and cites", in(1, `"success"`, `"error","sourceEventSeq":0`)},
		{"CMD", "cites what comes later", in(1, `"success"`, `"success","sourceEventSeq":7`)},
		{"CMD", "cites a command", in(1, `"success"`, `"success","sourceEventSeq":0`)},
	},
	"DISPATCH-v3": {
		{"DISPATCH", "starts twice", func(l []string) []string { return slices.Insert(l, 8, l[7]) }},
		{"DISPATCH", "settled twice", func(l []string) []string { return slices.Insert(l, 9, l[8]) }},
		{"DISPATCH", "settled under another name", in(8, `"name":"y"`, `"name":"z"`)},
	},
	"INBOX-v4": {
		{"MSG-SHAPE", "what waits is no message", in(0, `[{"content":[{"type":"text","text":"q"}],"source":{"kind":"user"},"role":"user","id":"m1"}]`, `[null]`)},
		{"MSG-SHAPE", "what waits has no source", in(0, `"source":{"kind":"user"},`, ``)},
	},
	"STREAM-FINISH-v2": {
		{"STREAM-FINISH", "goes on", in(4, `"kind":"stop"}}}`, `"kind":"stop"}}},{"type":"text-chunks","time0":16,"index":0,"dt":[],"texts":["c"]}`)},
		{"STREAM-FINISH", "finishes twice", in(4, `"kind":"stop"}}}`, `"kind":"stop"}}},{"type":"chunk","time":16,"chunk":{"type":"finish","reason":{"kind":"stop"}}}`)},
	},
	"STREAM-ROW-within-v4": {
		{"STREAM-ROW", "a failure without code", in(4, `{"kind":"stop"}`, `{"kind":"error","failure":{"message":"m"}}`)},
		{"STREAM-ROW", "a chunk without index", in(4, `,{"type":"chunk","time":15`, `,{"type":"chunk","time":15,"chunk":{"type":"block-start","blockType":"text"}},{"type":"chunk","time":15`)},
		{"STREAM-ROW", "a block that is none", in(4, `,{"type":"chunk","time":15`, `,{"type":"chunk","time":15,"chunk":{"type":"block-end","index":1.5,"block":"a"}},{"type":"chunk","time":15`)},
		{"STREAM-ROW", "a record with half an index", in(4, `"index":0`, `"index":0.5`)},
	},
	"SUBAGENT-CATALOG-v3": {
		{"SUBAGENT-CATALOG", "a lasting child without label", in(0, "one-shot", "continuable")},
		{"SUBAGENT-CATALOG", "a child of elsewhere", in(0, "one-shot", "external")},
		{"SUBAGENT-CATALOG", "an unknown version", in(0, `"version":0`, `"version":9`)},
		{"SUBAGENT-CATALOG", "a mode of another version", in(0, `one-shot`, `other`)},
	},
}

// bareLine finds the parts of a line that a list of events keeps.
var bareLine = regexp.MustCompile(`^\{"type":"([^"]+)","seq":\d+,"time":\d+,"data":(.*)\}$`)

func soundOf(t *testing.T, pair string) (head string, lines []string) {
	t.Helper()
	a, err := txtar.ParseFile(filepath.Join("testdata", pair+".txtar"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range a.Files {
		if f.Name != "ok.jsonl" {
			continue
		}
		for l := range strings.Lines(string(f.Data)) {
			l = strings.TrimSuffix(l, "\n")
			if m := bareLine.FindStringSubmatch(l); m != nil {
				lines = append(lines, m[1]+" "+strings.Replace(m[2], `,"surfaceOp"`, "\t"+`,"surfaceOp"`, 1))
			} else {
				head = l + "\n"
			}
		}
	}
	return head, lines
}

// lineStart is the offset of a line, from 1.
func lineStart(data string, line int64) int64 {
	at := 0
	for range line - 1 {
		at += strings.IndexByte(data[at:], '\n') + 1
	}
	return int64(at)
}

// Every way to break a rule that has several, with the words for it. Those with a pair
// of logs of their own are not repeated.
func TestBreaches(t *testing.T) {
	const (
		modernHead = `{"type":"session","version":0,"id":"s","createdAt":1,"cwd":"/w","delegationDepth":0}` + "\n"
		earlyHead  = `{"type":"session","version":0,"id":"s","createdAt":1,"cwd":"/w"}` + "\n"
	)
	type base struct {
		name, head string
		lines      []string
		breaches   []breach
	}
	bases := []base{{"modern", modernHead, modern, breaches["modern"]}, {"early", earlyHead, early, breaches["early"]}}
	for _, pair := range slices.Sorted(maps.Keys(laterBreaches)) {
		head, lines := soundOf(t, pair)
		bases = append(bases, base{pair, head, lines, laterBreaches[pair]})
	}
	for _, name := range slices.Sorted(maps.Keys(settledLogs)) {
		l := settledLogs[name]
		bases = append(bases, base{name, l.head + "\n", l.lines, l.breaches})
	}
	var got strings.Builder
	for _, base := range bases {
		if res := judge(t, []byte(base.head+eventLines(base.lines...)), Options{}); res.Verdict != OK || res.Errors+res.Warnings > 0 {
			t.Fatalf("%s is not sound:\n%s", base.name, verdictLines(res))
		}
		for _, b := range base.breaches {
			data := base.head + eventLines(b.do(slices.Clone(base.lines))...)
			res := judge(t, []byte(data), Options{})
			fmt.Fprintf(&got, "== %s, %s: %s (%s)\n", base.name, b.rule, b.name, res.Verdict)
			n := 0
			for _, f := range res.Findings {
				if f.Rule == b.rule {
					n++
					fmt.Fprintf(&got, "%s line %d seq %d %s: %s\n", f.Severity, f.Pos.Line, f.Seq, f.Path, f.Message)
					if start := lineStart(data, f.Pos.Line); f.Offset() != start {
						t.Errorf("%s: %s: line %d at byte %d, want %d", base.name, b.name, f.Pos.Line, f.Offset(), start)
					}
				}
			}
			if n == 0 {
				t.Errorf("%s: %s: nothing is found by %s:\n%s", base.name, b.name, b.rule, verdictLines(res))
			}
		}
	}
	golden := filepath.Join("testdata", "breaches.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(string(read(t, golden)), got.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
