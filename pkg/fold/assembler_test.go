package fold

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/internal/jsjson"
)

// An assembled message in one line, for tables.
func (r *Assembly) line() string {
	if r == nil {
		return "no message"
	}
	s := string(r.Content) + " " + r.Finish
	if !r.Finished {
		s += " (open)"
	}
	if r.Usage != nil {
		s += " usage " + string(r.Usage)
	}
	if r.ReplayState != nil {
		s += " replay " + string(r.ReplayState)
	}
	return s
}

func TestAssembler(t *testing.T) {
	start := func(index, kind string) string {
		return `{"type":"block-start","index":` + index + `,"blockType":"` + kind + `"}`
	}
	text := func(index, s string) string {
		return `{"type":"text-delta","index":` + index + `,"text":"` + s + `"}`
	}
	call := func(index, rest string) string {
		return `{"type":"tool-call-delta","index":` + index + `,` + rest + `}`
	}
	end := func(index, block string) string {
		return `{"type":"block-end","index":` + index + `,"block":` + block + `}`
	}
	finish := func(kind string) string { return `{"type":"finish","reason":{"kind":"` + kind + `"}}` }
	replay := func(kind, state string) string {
		return `{"type":"finish","reason":{"kind":"` + kind + `"},"replayState":` + state + `}`
	}
	const two = `{"response":{"r":1},"blocks":["b0","b1"]}`
	callBlock := `{"type":"tool-call","id":"c1","name":"ls","arguments":"{}"}`

	for _, tc := range []struct {
		name        string
		chunks      []string
		set         func(*Assembler)
		rule        ReplayRule
		want        string
		interrupted string // "" when not asked for
	}{
		{name: "nothing", want: `[] stop (open)`, interrupted: "no message"},
		{
			name: "text and call",
			chunks: []string{start("0", "text"), text("0", "He"), text("0", "y"), start("1", "tool-call"),
				call("1", `"id":"c1","name":"ls","argumentsDelta":"{\"a\""`), call("1", `"id":"c1","argumentsDelta":":1}"`), finish("tool-calls")},
			want:        `[{"type":"text","text":"Hey"},{"type":"tool-call","id":"c1","name":"ls","arguments":"{\"a\":1}"}] tool-calls`,
			interrupted: `[{"type":"text","text":"Hey"}] tool-calls`,
		},
		{
			name: "max-tokens drops calls",
			chunks: []string{start("0", "text"), text("0", "He"), start("1", "tool-call"),
				call("1", `"id":"c1","name":"ls","argumentsDelta":"{"`), end("2", callBlock), finish("max-tokens")},
			want: `[{"type":"text","text":"He"}] max-tokens`,
		},
		{
			name: "max-tokens keeps calls in the oldest logs",
			set:  func(a *Assembler) { a.KeepCutToolCalls = true },
			chunks: []string{start("1", "tool-call"),
				call("1", `"id":"c1","name":"ls","argumentsDelta":"{"`), finish("max-tokens")},
			want: `[{"type":"tool-call","id":"c1","name":"ls","arguments":"{"}] max-tokens`,
		},
		{
			name:   "order of first appearance, not of index",
			chunks: []string{text("5", "a"), text("0", "b"), text("5", "c"), finish("stop")},
			want:   `[{"type":"text","text":"ac"},{"type":"text","text":"b"}] stop`,
		},
		{
			name: "a block-start of a known index is ignored",
			chunks: []string{start("0", "text"), text("0", "a"), start("0", "reasoning"), text("0", "b"),
				end("0", `{"type":"text","text":"ab"}`), start("0", "text"), text("0", "c"), finish("stop")},
			want: `[{"type":"text","text":"ab"}] stop`,
		},
		{
			name: "the first close wins",
			chunks: []string{start("0", "text"), text("0", "a"), end("0", `{"type":"text","text":"first","x":1}`),
				text("0", "b"), end("0", `{"type":"text","text":"second"}`)},
			want: `[{"type":"text","text":"first","x":1}] stop (open)`,
		},
		{
			name: "the last close wins in the first days",
			set:  func(a *Assembler) { a.LastCloseWins = true },
			chunks: []string{end("0", `{"type":"text","text":"first"}`), text("0", "b"),
				end("0", `{"type":"text","text":"second"}`)},
			want: `[{"type":"text","text":"second"}] stop (open)`,
		},
		{
			name:   "defaults of a call",
			chunks: []string{start("3", "tool-call"), start("4", "tool-call"), call("4", `"id":"x","name":"","argumentsDelta":""`)},
			want:   `[{"type":"tool-call","id":"call-3","name":"","arguments":""},{"type":"tool-call","id":"x","name":"","arguments":""}] stop (open)`,
		},
		{
			name: "the latest id, the latest name that says something",
			chunks: []string{call("0", `"id":"a","name":"one","argumentsDelta":"1"`), call("0", `"id":"b","name":"two","argumentsDelta":"2"`),
				call("0", `"id":"c","name":"","argumentsDelta":"3"`)},
			want: `[{"type":"tool-call","id":"c","name":"two","arguments":"123"}] stop (open)`,
		},
		{
			name: "the last usage and the last finish",
			chunks: []string{`{"type":"usage","usage":{"inputTokens":1}}`, replay("stop", `{"a":1}`), `{"type":"usage","usage":{"inputTokens":2}}`,
				finish("tool-calls"), `{"type":"unheard-of","index":0}`},
			rule: ReplayAsIs,
			want: `[] tool-calls usage {"inputTokens":2}`,
		},
		{
			name:   "surrogate halves meet",
			chunks: []string{text("0", `a\ud83e`), text("0", `\udded b`), text("0", `\\ud83e`), text("0", `\udded`)},
			want:   "[{\"type\":\"text\",\"text\":\"a\U0001F9ED b\\\\ud83e\\udded\"}] stop (open)",
		},
		{
			name: "an interrupted stream keeps what says something",
			chunks: []string{text("0", `\n\t \u2028`), text("1", "a"), start("2", "audio"), `{"type":"reasoning-delta","index":3,"text":"r"}`,
				end("4", `{"type":"text","text":" \ufeff"}`), end("5", `{"type":"text","text":"b","cache":true}`), end("6", callBlock),
				text("7", `\u0085`), `{"type":"usage","usage":{"inputTokens":2}}`},
			want:        "block 2 of type \"audio\" is never closed",
			interrupted: `[{"type":"text","text":"a"},{"type":"reasoning","text":"r"},{"type":"text","text":"b","cache":true},{"type":"text","text":"` + "\u0085" + `"}] stop (open) usage {"inputTokens":2}`,
		},
		{
			name:   "a closed block of any type is kept",
			chunks: []string{start("0", "audio"), end("0", `{"type":"audio","url":"u"}`), finish("stop")},
			want:   `[{"type":"audio","url":"u"}] stop`,
		},
		{
			name:   "replay state before it was stored",
			chunks: []string{text("0", "a"), replay("stop", `{"s":1}`)}, rule: ReplayNever,
			want: `[{"type":"text","text":"a"}] stop`,
		},
		{
			name:   "replay state of an unchanged message",
			chunks: []string{text("0", "a"), replay("stop", `{"s":1}`)}, rule: ReplayIfUnchanged,
			want: `[{"type":"text","text":"a"}] stop replay {"s":1}`,
		},
		{
			name:   "replay state of a cut message",
			chunks: []string{text("0", "a"), end("1", callBlock), replay("max-tokens", `{"s":1}`)}, rule: ReplayIfUnchanged,
			want: `[{"type":"text","text":"a"}] max-tokens`,
		},
		{
			name:   "replay state passed through",
			chunks: []string{text("0", "a"), end("1", callBlock), replay("max-tokens", two)}, rule: ReplayAsIs,
			want: `[{"type":"text","text":"a"}] max-tokens replay ` + two,
		},
		{
			name:   "replay state trimmed",
			chunks: []string{end("1", callBlock), text("0", "a"), replay("max-tokens", two)}, rule: ReplayTrimmed,
			want: `[{"type":"text","text":"a"}] max-tokens replay {"response":{"r":1},"blocks":["b1"]}`,
		},
		{
			name:   "replay state with as many blocks as were assembled",
			chunks: []string{end("1", callBlock), text("0", "a"), replay("stop", two)}, rule: ReplayTrimmed,
			want: `[` + callBlock + `,{"type":"text","text":"a"}] stop replay ` + two,
		},
		{
			name:   "replay state for other blocks",
			chunks: []string{text("0", "a"), replay("stop", two)}, rule: ReplayTrimmed,
			want: `[{"type":"text","text":"a"}] stop`,
		},
		{
			name:   "replay state without blocks",
			chunks: []string{text("0", "a"), end("1", callBlock), replay("max-tokens", `{"response":1}`)}, rule: ReplayTrimmed,
			want: `[{"type":"text","text":"a"}] max-tokens replay {"response":1}`,
		},
		{name: "no object", chunks: []string{finish("stop"), `[]`}, want: "chunk 1: chunk is an array, want an object"},
		{name: "no type", chunks: []string{`{"index":0}`}, want: "chunk 0: chunk.type is absent, want a string"},
		{name: "no index", chunks: []string{`{"type":"text-delta","text":"a"}`}, want: "chunk 0: chunk.index is absent, want a number"},
		{name: "no text", chunks: []string{`{"type":"text-delta","index":0,"text":null}`}, want: "chunk 0: chunk.text is null, want a string"},
		{name: "no arguments", chunks: []string{call("0", `"id":"a"`)}, want: "chunk 0: chunk.argumentsDelta is absent, want a string"},
		{name: "no block type", chunks: []string{`{"type":"block-start","index":0}`}, want: "chunk 0: chunk.blockType is absent, want a string"},
		{name: "no block", chunks: []string{end("0", `"x"`)}, want: "chunk 0: chunk.block is a string, want an object"},
		{name: "no reason", chunks: []string{`{"type":"finish","reason":"stop"}`}, want: "chunk 0: chunk.reason.kind is absent, want a string"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var a Assembler
			if tc.set != nil {
				tc.set(&a)
			}
			// Twice, so that nothing of a first attempt is left in a second.
			for range 2 {
				a.Reset()
				for _, c := range tc.chunks {
					if !jsjson.Canonical([]byte(c)) {
						// Escapes above are written for the reader, not as V8 writes them.
						b, _, err := jsjson.Stringify([]byte(c))
						if err != nil {
							t.Fatal(err)
						}
						c = string(b)
					}
					buf := []byte(c)
					_ = a.Add(buf)
					for i := range buf {
						buf[i] = 'x' // the reader reuses its memory
					}
				}
				got := ""
				if r, err := a.Result(tc.rule); err != nil {
					got = err.Error()
				} else {
					got = r.line()
					if !jsjson.Canonical(r.Content) {
						t.Errorf("content is not canonical: %s", r.Content)
					}
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
				if tc.interrupted != "" {
					r, err := a.Interrupted()
					if err != nil {
						t.Fatal(err)
					}
					if diff := cmp.Diff(tc.interrupted, r.line()); diff != "" {
						t.Errorf("interrupted (-want +got)\n%s", diff)
					}
				}
			}
		})
	}
}

// Indices beyond a handful go through a map, with the same result.
func TestAssemblerManyBlocks(t *testing.T) {
	var a Assembler
	for range 2 {
		a.Reset()
		var want []string
		for round := range 3 {
			for i := range 100 {
				s := strconv.Itoa(i)
				if err := a.Add([]byte(`{"type":"text-delta","index":` + s + `,"text":"` + s + `."}`)); err != nil {
					t.Fatal(err)
				}
				if round == 0 {
					want = append(want, `{"type":"text","text":"`+s+`.`+s+`.`+s+`."}`)
				}
			}
		}
		r, err := a.Result(ReplayNever)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff("["+strings.Join(want, ",")+"]", string(r.Content)); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
}

func TestAssemblerDoesNotAllocate(t *testing.T) {
	var a Assembler
	chunk := []byte(`{"type":"text-delta","index":0,"text":"abc"}`)
	for range 1000 {
		_ = a.Add(chunk)
	}
	a.Reset()
	if n := testing.AllocsPerRun(500, func() { _ = a.Add(chunk) }); n != 0 {
		t.Errorf("%v allocations a chunk, want none", n)
	}
}

// The full corpus is an independent witness: what the harness assembled stands
// beside the chunks it assembled it from.
func TestAssemblerCorpus(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	// Logs whose messages do not come from their chunks.
	changed := map[string]string{"head/legacy-messages/session.jsonl": "authored by hand, with messages that cite nothing"}
	n, logs := 0, 0
	for _, era := range []string{"head", "july"} {
		err := filepath.WalkDir(filepath.Join(dir, era), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			name, _ := filepath.Rel(dir, path)
			base := filepath.Base(path)
			if d.IsDir() || !strings.HasPrefix(base, "session.") || !strings.HasSuffix(base, ".jsonl") || strings.Contains(base, "packed") ||
				strings.Contains(name, "invalid-") || changed[name] != "" {
				return nil
			}
			n += checkAssembly(t, name, path)
			logs++
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d messages of %d logs", n, logs)
	if n != 652 || logs != 156 {
		t.Errorf("%d messages of %d logs, want 652 of 156", n, logs)
	}
}

func checkAssembly(t *testing.T, name, path string) int {
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	chunks := map[int64][]byte{}
	var a Assembler
	n := 0
	for line := range bytes.Lines(raw) {
		b, _, err := jsjson.Stringify(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil {
			continue
		}
		e := event(b)
		switch e.Type {
		case "assistant/chunk":
			chunks[e.Seq] = bytes.Clone(jsjson.Get(e.Data, "chunk"))
		case "assistant/message":
			if jsjson.KindOf(e.Sources) != jsjson.Array {
				continue
			}
			a.Reset()
			for s := range jsjson.Elements(e.Sources) {
				seq, _ := jsjson.SafeInt(s)
				if err := a.Add(chunks[seq]); err != nil {
					t.Errorf("%s: seq %d: %v", name, e.Seq, err)
				}
			}
			message := jsjson.Get(e.Data, "message")
			source := jsjson.Get(message, "source")
			if message == nil {
				message, source = e.Data, jsjson.Get(e.Data, "provenance")
			}
			var r *Assembly
			if string(jsjson.Get(e.Data, "interrupted")) == "true" {
				r, err = a.Interrupted()
			} else {
				r, err = a.Result(ReplayTrimmed)
			}
			if err != nil || r == nil {
				t.Errorf("%s: seq %d: %v %v", name, e.Seq, r, err)
				continue
			}
			n++
			if diff := cmp.Diff(string(jsjson.Get(message, "content")), string(r.Content)); diff != "" {
				t.Errorf("%s: seq %d: content (-logged +assembled)\n%s", name, e.Seq, diff)
			}
			if diff := cmp.Diff(string(jsjson.Get(e.Data, "usage")), string(r.Usage)); diff != "" {
				t.Errorf("%s: seq %d: usage (-logged +assembled)\n%s", name, e.Seq, diff)
			}
			if diff := cmp.Diff(string(jsjson.Get(source, "replayState")), string(r.ReplayState)); diff != "" {
				t.Errorf("%s: seq %d: replayState (-logged +assembled)\n%s", name, e.Seq, diff)
			}
		}
	}
	return n
}

func TestOpenBlockError(t *testing.T) {
	var a Assembler
	if err := a.Add([]byte(`{"type":"block-start","index":0,"blockType":"tool-result"}`)); err != nil {
		t.Fatal(err)
	}
	_, err := a.Result(ReplayNever)
	var open *OpenBlockError
	if !errors.As(err, &open) || *open != (OpenBlockError{Index: "0", Type: `"tool-result"`}) {
		t.Errorf("error %v", err)
	}
}

func FuzzAssembler(f *testing.F) {
	f.Add([]byte(`[{"type":"block-start","index":0,"blockType":"text"},{"type":"text-delta","index":0,"text":"a\ud83d"},{"type":"text-delta","index":0,"text":"\udca5"},{"type":"finish","reason":{"kind":"stop"},"replayState":{"blocks":[1]}}]`))
	f.Add([]byte(`[{"type":"tool-call-delta","index":1,"id":"c","name":"n","argumentsDelta":"\\"},{"type":"tool-call-delta","index":1,"argumentsDelta":"\ud83d"},{"type":"block-end","index":2,"block":{"type":"tool-call"}},{"type":"finish","reason":{"kind":"max-tokens"},"replayState":{"response":1,"blocks":[1,2]}}]`))
	f.Add([]byte(`[{"type":"usage","usage":null},{"type":"block-end","index":-1.5,"block":{}},{"type":"reasoning-delta","index":3,"text":" "}]`))
	f.Add([]byte(`[7,{},{"type":7}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, _, err := jsjson.Stringify(data)
		if err != nil {
			t.Skip()
		}
		var a, b Assembler
		b.Reset()
		for c := range jsjson.Elements(list) {
			_ = a.Add(c)
		}
		// A second run through reused memory, with texts split where they may be.
		_ = b.Add([]byte(`{"type":"text-delta","index":0,"text":"rest"}`))
		_ = b.Add([]byte(`{"type":"block-end","index":1,"block":{}}`))
		b.Reset()
		for c := range jsjson.Elements(list) {
			for _, part := range split(c) {
				_ = b.Add(part)
			}
		}
		for rule := ReplayNever; rule <= ReplayTrimmed; rule++ {
			r, err := a.Result(rule)
			s, err2 := b.Result(rule)
			if (err == nil) != (err2 == nil) {
				t.Fatalf("whole: %v, in parts: %v", err, err2)
			}
			if err != nil {
				continue
			}
			if diff := cmp.Diff(r, s); diff != "" {
				t.Errorf("(-whole +in parts)\n%s", diff)
			}
			for _, v := range [][]byte{r.Content, r.Usage, r.Reason, r.ReplayState} {
				if v != nil && !jsjson.Canonical(v) {
					t.Errorf("not canonical: %s", v)
				}
			}
			if jsjson.Len(r.Content) != r.Blocks {
				t.Errorf("%d blocks in %s", r.Blocks, r.Content)
			}
		}
		if r, err := a.Interrupted(); err == nil && r != nil && (r.Blocks == 0 || !jsjson.Canonical(r.Content)) {
			t.Errorf("interrupted: %s", r.Content)
		}
	})
}

// split cuts a text delta in two between UTF-16 units, in the middle of a
// surrogate pair if there is one.
func split(chunk []byte) [][]byte {
	typ, _ := jsjson.Str(jsjson.Get(chunk, "type"))
	text, ok := jsjson.Str(jsjson.Get(chunk, "text"))
	index := jsjson.Get(chunk, "index")
	if typ != "text-delta" || !ok || jsjson.KindOf(index) != jsjson.Number {
		return [][]byte{chunk}
	}
	one, two := text, ""
	for i, r := range text {
		if r >= 0x10000 {
			hi, lo := 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff
			one = text[:i] + string([]byte{0xed, byte(0x80 | hi>>6&0x3f), byte(0x80 | hi&0x3f)})
			two = string([]byte{0xed, byte(0x80 | lo>>6&0x3f), byte(0x80 | lo&0x3f)}) + text[i+4:]
			break
		}
		if i > 0 && r < 0x80 {
			one, two = text[:i], text[i:]
		}
	}
	part := func(s string) []byte {
		b := append([]byte(`{"type":"text-delta","index":`), index...)
		return append(jsjson.AppendQuote(append(b, `,"text":`...), s), '}')
	}
	return [][]byte{part(one), part(two)}
}
