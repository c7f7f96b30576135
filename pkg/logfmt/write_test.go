package logfmt

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/zframe"
)

const writeHeader = `{"type":"session","version":0,"id":"s","createdAt":1,"delegationDepth":0}`

// written writes events, given as JSON, ending a batch where a text is empty.
func written(t testing.TB, form Form, events ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := NewWriter(&out, form)
	if err := w.Begin([]byte(writeHeader)); err != nil {
		t.Fatal(err)
	}
	for _, text := range events {
		if text == "" {
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		var e Event
		var env envelope
		var names nameCache
		e.JSON = []byte(text)
		parseEnvelope(e.JSON, &e, &env, &names)
		if err := w.Add(&e); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if int64(out.Len()) != w.Written() {
		t.Errorf("%d bytes are said to be written, not %d", w.Written(), out.Len())
	}
	return out.Bytes()
}

func chunkOf(seq int, text string) string {
	return fmt.Sprintf(`{"type":"assistant/chunk","seq":%d,"time":%d,"data":{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":%q}}}`, seq, 10+seq, text)
}

// readBack reads a log and returns its events as JSON.
func readBack(t testing.TB, name string, data []byte) []string {
	t.Helper()
	log, err := NewReader(bytes.NewReader(data), name, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	var got []string
	for e, d := range log.Events() {
		if d != nil {
			t.Fatal(d)
		}
		got = append(got, string(e.JSON))
	}
	if log.Class() != Intact {
		t.Fatalf("%s is %s", name, log.Class())
	}
	return got
}

func TestLineWriter(t *testing.T) {
	const turn = `{"type":"turn/start","seq":0,"time":1,"data":{"turn":1}}`
	events := []string{turn, chunkOf(1, "a"), chunkOf(2, "b"), chunkOf(3, "c"), chunkOf(4, "d"), "", chunkOf(5, "e"), chunkOf(6, "f")}
	var flat []string
	for _, e := range events {
		if e != "" {
			flat = append(flat, e)
		}
	}
	plain := strings.Join(append([]string{writeHeader}, append(flat, "")...), "\n")
	if got := string(written(t, FormPlain, events...)); got != plain {
		t.Errorf("plain:\n%s\nwant\n%s", got, plain)
	}
	// A run ends with its batch, and two events are no row.
	packed := writeHeader + "\n" + turn + "\n" +
		`{"type":"text-chunks","seq0":1,"time0":11,"data":{"turn":1,"step":1,"index":0,"dt":[1,1,1],"texts":["a","b","c","d"]}}` + "\n" +
		chunkOf(5, "e") + "\n" + chunkOf(6, "f") + "\n"
	if got := string(written(t, FormPacked, events...)); got != packed {
		t.Errorf("packed:\n%s\nwant\n%s", got, packed)
	}
	frames := written(t, FormZstd, events...)
	var texts []string
	walk, dec := zframe.NewWalker(bytes.NewReader(frames), int64(len(frames))), zframe.NewDecoder()
	for {
		f, err := walk.Next()
		if err != nil {
			break
		}
		text, err := dec.Decode(nil, bytes.NewReader(frames), f)
		if err != nil || !f.Checksum {
			t.Fatalf("frame %d: checksum %v, %v", f.Index, f.Checksum, err)
		}
		texts = append(texts, string(text))
	}
	lines := strings.SplitAfter(packed, "\n")
	want := []string{lines[0], lines[1] + lines[2], lines[3] + lines[4]}
	if d := cmp.Diff(want, texts); d != "" {
		t.Errorf("frames (-want +got):\n%s", d)
	}
	for name, data := range map[string][]byte{"s.jsonl": []byte(packed), "s.jsonl.zstd": frames} {
		if d := cmp.Diff(flat, readBack(t, name, data)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// Rows and frames are bounded, however long a batch is.
func TestLineWriterBounds(t *testing.T) {
	var events []string
	for i := range 2500 {
		events = append(events, chunkOf(i, strings.Repeat("x", 300)))
	}
	packed := written(t, FormPacked, events...)
	if n := bytes.Count(packed, []byte("\n")); n != 4 { // the header, 1024, 1024 and 452
		t.Errorf("%d lines, want 4", n)
	}
	for name, data := range map[string][]byte{"s.jsonl": packed, "s.jsonl.zstd": written(t, FormZstd, events...)} {
		if d := cmp.Diff(events, readBack(t, name, data)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	log, err := NewReader(bytes.NewReader(written(t, FormZstd, events...)), "s.jsonl.zstd", Options{})
	if err != nil {
		t.Fatal(err)
	}
	for range log.Events() {
	}
	if f := log.Frames(); f != (FrameStats{Frames: 4}) {
		t.Errorf("frames: %+v", f)
	}
	if got := readBack(t, "s.jsonl.zstd", written(t, FormZstd)); got != nil {
		t.Errorf("a log without events holds %v", got)
	}
}

// What a line cannot hold, or does not come next, is not written.
func TestLineWriterRefuses(t *testing.T) {
	for _, c := range []struct {
		e    Event
		want string
	}{
		{Event{Type: "text-chunks", JSON: []byte("{}")}, "seq 0: the event type text-chunks is the name of a packed row: a line has no place for it"},
		{Event{Type: "turn/start", Seq: 1, JSON: []byte("{}")}, "expected seq 0, got 1"},
		{Event{Type: "turn/start"}, "seq 0: an event without text"},
	} {
		var out bytes.Buffer
		if err := NewWriter(&out, FormPlain).Add(&c.e); err == nil || err.Error() != c.want || out.Len() > 0 {
			t.Errorf("%+v: %v, %q", c.e, err, out.Bytes())
		}
	}
}

func TestHeaderLine(t *testing.T) {
	one := int64(1)
	preset := "p"
	for _, c := range []struct {
		name string
		h    Header
		db   *Database
		want string
	}{
		{"of a line", Header{Raw: []byte("{}")}, nil, "{}"},
		{"of an old database", Header{Raw: []byte("{}")}, &Database{Schema: 4}, "{}"},
		{"with a depth", Header{Raw: []byte("{}"), DelegationDepth: &one}, &Database{Schema: 17}, "{}"},
		{"without", Header{Raw: []byte("{}"), ID: "s", CreatedAt: 7, AgentPreset: &preset}, &Database{Schema: 17},
			`{"type":"session","version":0,"id":"s","createdAt":7,"delegationDepth":0,"agentPreset":"p"}`},
	} {
		if got := string(c.h.Line(c.db)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// FuzzLineWriter writes what is kept of any log in every form and reads it again.
func FuzzLineWriter(f *testing.F) {
	f.Add([]byte(writeHeader+"\n"+chunkOf(0, "a")+"\n"+chunkOf(1, "b")+"\n"+chunkOf(2, "c")+"\n"), uint8(2))
	f.Add([]byte(writeHeader+"\n"+`{"type":"text-chunks","seq0":0,"time0":11,"data":{"turn":1,"step":1,"index":0,"dt":[1,1],"texts":["a","b","\ud800"]}}`+"\n"), uint8(1))
	f.Add([]byte(writeHeader+"\r\n"+`{ "type" : "x/y", "seq":0, "data":-0, "9":1e999, "a":"\u0041" }`+"\n"), uint8(0))
	f.Fuzz(func(t *testing.T, data []byte, batch uint8) {
		log, err := NewReader(bytes.NewReader(data), "s.jsonl", Options{})
		if err != nil || log.Header == nil || log.Header.Generation != 0 {
			t.Skip()
		}
		defer log.Close()
		var want []string
		var outs [3]bytes.Buffer
		var writers [3]*Writer
		for i := range writers {
			writers[i] = NewWriter(&outs[i], Form(i))
			if err := writers[i].Begin([]byte(writeHeader)); err != nil {
				t.Fatal(err)
			}
		}
		for e, d := range log.Events() {
			if d != nil || e.AfterDamage {
				continue
			}
			want = append(want, string(e.JSON))
			for _, w := range writers {
				if err := w.Add(e); err != nil {
					t.Fatal(err)
				}
				if batch > 0 && len(want)%int(batch) == 0 {
					if err := w.Flush(); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		for i, w := range writers {
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			name := "s.jsonl"
			if Form(i) == FormZstd {
				name += ".zstd"
			}
			if d := cmp.Diff(want, readBack(t, name, outs[i].Bytes())); d != "" {
				t.Errorf("form %d (-want +got):\n%s", i, d)
			}
		}
	})
}
