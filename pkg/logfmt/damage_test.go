package logfmt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
)

const testHeader = `{"type":"session","version":0,"id":"s1","createdAt":1,"cwd":"/w","delegationDepth":0}`

func ev(typ string, seq any) string {
	return fmt.Sprintf(`{"type":"%s","seq":%v,"time":1,"data":{"turn":1}}`, typ, seq)
}

// sound is a log of two turns, seq 0 to 7.
func sound() []string {
	return []string{testHeader,
		ev("turn/start", 0), ev("a", 1), ev("b", 2), ev("turn/end", 3),
		ev("turn/start", 4), ev("c", 5), ev("d", 6), ev("turn/end", 7)}
}

func text(lines []string) string { return strings.Join(lines, "\n") + "\n" }

func read(t *testing.T, text string) (*Log, []int64, string) {
	t.Helper()
	l, err := NewReader(strings.NewReader(text), "log", Options{})
	if err != nil {
		t.Fatal(err)
	}
	var seqs []int64
	for e, d := range l.Events() {
		if d == nil {
			seqs = append(seqs, e.Seq)
		}
	}
	return l, seqs, summary(l, len(seqs))
}

// TestMutations breaks a sound log in one way each.
func TestMutations(t *testing.T) {
	insert := func(at int, lines ...string) func([]string) []string {
		return func(l []string) []string { return slices.Insert(l, at, lines...) }
	}
	set := func(at int, line string) func([]string) []string {
		return func(l []string) []string { l[at] = line; return l }
	}
	for _, c := range []struct {
		name string
		do   func([]string) []string
		seqs string
		want string
	}{
		{"sound", func(l []string) []string { return l }, "[0 1 2 3 4 5 6 7]",
			"intact, 8 of 8 events kept, 502 bytes\n"},
		{"one event lost", func(l []string) []string { return slices.Delete(l, 3, 4) }, "[0 1 3 4 5 6 7]",
			"corrupt, 2 of 7 events kept, 191 bytes\n" +
				"  line 4 offset 191+0 seq 2 LOG-SEQ (corrupt): expected seq 2, got 3: one event is missing\n"},
		{"events lost before the last turn/end", func(l []string) []string { return slices.Delete(l, 6, 8) }, "[0 1 2 3 4 7]",
			"corrupt, 5 of 6 events kept, 351 bytes\n" +
				"  line 7 offset 351+0 seq 5 LOG-SEQ (corrupt): expected seq 5, got 7: 2 events are missing\n"},
		{"gap behind the last turn/end", insert(9, ev("e", 9)), "[0 1 2 3 4 5 6 7 9]",
			"torn, 8 of 9 events kept, 502 bytes\n" +
				"  line 10 offset 502+0 seq 8 LOG-SEQ (corrupt): expected seq 8, got 9: one event is missing\n"},
		{"neighbours swapped", func(l []string) []string { l[2], l[3] = l[3], l[2]; return l }, "[0 2 1 3 4 5 6 7]",
			"corrupt, 1 of 8 events kept, 143 bytes\n" +
				"  line 3 offset 143+0 seq 1 LOG-SEQ (corrupt): expected seq 1, got 2: seq 1 stands in the record behind it, the order is wrong\n"},
		{"one event too early", func(l []string) []string {
			e := l[7]
			return slices.Insert(slices.Delete(l, 7, 8), 2, e)
		}, "[0 6 1 2 3 4 5 7]",
			"corrupt, 1 of 8 events kept, 143 bytes\n" +
				"  line 3 offset 143+0 seq 1 LOG-SEQ (corrupt): expected seq 1, got 6: seq 1 stands in the record behind it, the order is wrong\n"},
		{"one event too late", func(l []string) []string {
			e := l[2]
			return slices.Insert(slices.Delete(l, 2, 3), 7, e)
		}, "[0 2 3 4 5 6 1 7]",
			"corrupt, 1 of 8 events kept, 143 bytes\n" +
				"  line 3 offset 143+0 seq 1 LOG-SEQ (corrupt): expected seq 1, got 2: one event is missing\n" +
				"  line 8 offset 399+0 seq 7 LOG-SEQ (corrupt): expected seq 7, got 1: it comes late, it was passed over at line 3\n"},
		{"event written twice", insert(4, ev("b", 2)), "[0 1 2 2 3 4 5 6 7]",
			"corrupt, 3 of 9 events kept, 239 bytes\n" +
				"  line 5 offset 239+0 seq 3 LOG-SEQ (corrupt): expected seq 3, got 2: the seq of the record before it, at line 4, is used again\n"},
		{"last turn/end written twice", insert(9, ev("turn/end", 7)), "[0 1 2 3 4 5 6 7 7]",
			"corrupt, 8 of 9 events kept, 502 bytes\n" +
				"  line 10 offset 502+0 seq 8 LOG-SEQ (corrupt): expected seq 8, got 7: the seq of the record before it, at line 9, is used again\n"},
		{"batch written twice", func(l []string) []string { return append(l[:7:7], l[5:]...) }, "[0 1 2 3 4 5 4 5 6 7]",
			"corrupt, 6 of 10 events kept, 399 bytes\n" +
				"  line 8 offset 399+0 seq 6 LOG-SEQ (corrupt): expected seq 6, got 4: the numbering goes back\n"},
		{"another log appended", func(l []string) []string { return append(l, sound()...) }, "[0 1 2 3 4 5 6 7 -1 0 1 2 3 4 5 6 7]",
			"corrupt, 8 of 17 events kept, 502 bytes\n" +
				"  line 10 offset 502+0 seq 8 LOG-SEQ (corrupt): a second header record, expected the event with seq 8\n" +
				"  line 11 offset 588+0 seq 8 LOG-SEQ (corrupt): expected seq 8, got 0: the numbering starts again, as if another log was appended\n"},
		{"line replaced by garbage", set(3, "\x00\x01"), "[0 1 3 4 5 6 7]",
			"corrupt, 2 of 7 events kept, 191 bytes\n" +
				"  line 4 offset 191+0 seq 2 LINE-JSON (corrupt): not valid JSON: expected value, got 0x00\n"},
		{"garbage inserted", insert(3, `{"type":"b","seq`), "[0 1 2 3 4 5 6 7]",
			"corrupt, 2 of 8 events kept, 191 bytes\n" +
				"  line 4 offset 191+16 seq 2 LINE-JSON (corrupt): not valid JSON: expected '\"', got end of input\n"},
		{"garbage in two places", func(l []string) []string { l[3], l[6] = "{", "}"; return l }, "[0 1 3 4 6 7]",
			"corrupt, 2 of 6 events kept, 191 bytes\n" +
				"  line 4 offset 191+1 seq 2 LINE-JSON (corrupt): not valid JSON: expected key or '}', got end of input\n" +
				"  line 7 offset 305+0 seq 5 LINE-JSON (corrupt): not valid JSON: expected value, got '}'\n"},
		{"a byte order mark inside", set(3, "\xef\xbb\xbf"+ev("b", 2)), "[0 1 3 4 5 6 7]",
			"corrupt, 2 of 7 events kept, 191 bytes\n" +
				"  line 4 offset 191+0 seq 2 LINE-JSON (corrupt): not valid JSON: expected value, got U+FEFF\n"},
		{"blank line of spaces", insert(3, " \t\r"), "[0 1 2 3 4 5 6 7]",
			"corrupt, 2 of 8 events kept, 191 bytes\n" +
				"  line 4 offset 191+0 seq 2 LINE-BLANK (corrupt): blank line, expected a record\n"},
		{"null in the tail", insert(9, "null"), "[0 1 2 3 4 5 6 7]",
			"corrupt, 8 of 8 events kept, 502 bytes\n" +
				"  line 10 offset 502+0 seq 8 LINE-VALUE (corrupt): the line is null, expected the event with seq 8\n"},
		{"values in the tail", insert(9, "[1]", `"x"`, "true", "7"), "[0 1 2 3 4 5 6 7]",
			"torn, 8 of 8 events kept, 502 bytes\n" +
				"  line 10 offset 502+0 seq 8 LINE-VALUE (corrupt): the line is an array, expected an object with seq 8\n" +
				"  line 11 offset 506+0 seq 8 LINE-VALUE (corrupt): the line is a string, expected an object with seq 8\n" +
				"  line 12 offset 510+0 seq 8 LINE-VALUE (corrupt): the line is a boolean, expected an object with seq 8\n" +
				"  line 13 offset 515+0 seq 8 LINE-VALUE (corrupt): the line is a number, expected an object with seq 8\n"},
		{"seq is a string", set(3, ev("b", `"2"`)), "[0 1 -1 3 4 5 6 7]",
			"corrupt, 2 of 8 events kept, 191 bytes\n" +
				"  line 4 offset 191+0 seq 2 LOG-SEQ (corrupt): seq is \"2\", expected 2\n"},
		{"seq is absent", set(3, `{"type":"b","time":1,"data":1}`), "[0 1 -1 3 4 5 6 7]",
			"corrupt, 2 of 8 events kept, 191 bytes\n" +
				"  line 4 offset 191+0 seq 2 LOG-SEQ (corrupt): the event has no seq, expected seq 2\n"},
		{"seq written as 2.0", set(3, ev("b", "2.0")), "[0 1 2 3 4 5 6 7]",
			"intact, 8 of 8 events kept, 504 bytes\n"},
		{"a turn/end without seq in the tail", insert(9, `{"type":"turn/end"}`), "[0 1 2 3 4 5 6 7 -1]",
			"corrupt, 8 of 9 events kept, 502 bytes\n" +
				"  line 10 offset 502+0 seq 8 LOG-SEQ (corrupt): the event has no seq, expected seq 8\n"},
		{"garbage, then more of the turn", insert(9, "{", ev("e", 8)), "[0 1 2 3 4 5 6 7 8]",
			"torn, 8 of 9 events kept, 502 bytes\n" +
				"  line 10 offset 502+1 seq 8 LINE-JSON (corrupt): not valid JSON: expected key or '}', got end of input\n"},
		{"garbage, then a turn/end", insert(9, "{", ev("turn/end", 8)), "[0 1 2 3 4 5 6 7 8]",
			"corrupt, 8 of 9 events kept, 502 bytes\n" +
				"  line 10 offset 502+1 seq 8 LINE-JSON (corrupt): not valid JSON: expected key or '}', got end of input\n"},
		{"gap, then garbage", func(l []string) []string {
			l = slices.Delete(l, 3, 4)
			l[6] = "x"
			return l
		}, "[0 1 3 4 5 7]",
			"corrupt, 2 of 6 events kept, 191 bytes\n" +
				"  line 4 offset 191+0 seq 2 LOG-SEQ (corrupt): expected seq 2, got 3: one event is missing\n" +
				"  line 7 offset 351+0 seq 6 LINE-JSON (corrupt): not valid JSON: expected value, got 'x'\n"},
		{"row in the wrong place", insert(9, `{"type":"text-chunks","seq0":9,"time0":1,"data":{"turn":1,"step":1,"index":0,"dt":[1],"texts":["a","b"]}}`, ev("e", 11)),
			"[0 1 2 3 4 5 6 7 9 10 11]",
			"torn, 8 of 11 events kept, 502 bytes\n" +
				"  line 10 offset 502+0 seq 8 LOG-SEQ (corrupt): expected seq 8, got 9: one event is missing\n"},
		{"source ranges", set(3, `{"type":"user/message","seq":2,"time":1,"data":{},"sourceEventSeqs":[0,[0,1]],"surfaceOp":"append"}`), "[0 1 2 3 4 5 6 7]",
			"intact, 8 of 8 events kept, 554 bytes\n"},
		{"source ranges and damage", func(l []string) []string {
			l[3] = `{"type":"user/message","seq":2,"time":1,"data":{},"sourceEventSeqs":[[0,1]],"surfaceOp":"append"}`
			return slices.Delete(l, 4, 5)
		}, "[0 1 2 4 5 6 7]",
			"corrupt, 3 of 7 events kept, 289 bytes\n" +
				"  line 5 offset 289+0 seq 3 LOG-SEQ (corrupt): expected seq 3, got 4: one event is missing\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, seqs, got := read(t, text(c.do(sound())))
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if s := fmt.Sprint(seqs); s != c.seqs {
				t.Errorf("events %s, want %s", s, c.seqs)
			}
		})
	}
}

func TestTornTails(t *testing.T) {
	base := text(sound())
	for _, c := range []struct{ tail, want string }{
		{`{"type":"e"`, "  line 10 offset 502+11 seq 8 LINE-TORN (torn): the last line is cut after 11 bytes: expected the rest of a record and a line feed\n"},
		{ev("turn/end", 8), "  line 10 offset 502+54 seq 8 LINE-TORN (torn): the last line has no line feed: it reads as a whole record, but the harness drops it\n"},
		{"null", "  line 10 offset 502+4 seq 8 LINE-TORN (torn): the last line is cut after 4 bytes: expected the rest of a record and a line feed\n"},
		{"\x00\x00\x00", "  line 10 offset 502+0 seq 8 LINE-TORN (torn): the file ends in zero bytes, 3 of them, expected a record or the end\n"},
		{"{\n" + ev("e", 8) + "\n{", "  line 10 offset 502+1 seq 8 LINE-JSON (corrupt): not valid JSON: expected key or '}', got end of input\n" +
			"  line 12 offset 552+1 seq 9 LINE-TORN (torn): the last line is cut after 1 byte: expected the rest of a record and a line feed\n"},
	} {
		_, seqs, got := read(t, base+c.tail)
		want := fmt.Sprintf("torn, 8 of %d events kept, 502 bytes\n%s", len(seqs), c.want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

func TestHeaders(t *testing.T) {
	for _, c := range []struct{ header, want string }{
		{`{"type":"session","version":1,"id":"s-1","createdAt":1750200000000,"cwd":"/srv/app"}`, "intact fault 0x3"},
		{`{"type":"session","version":0,"id":"s-1","createdAt":1750600000000,"cwd":"/srv/app"}`, "intact fault 0x2"},
		{`{"type":"session","version":0,"id":"kid","createdAt":1753100000000,"cwd":"/srv/app","parentSession":"s-1","seedLength":6,"delegationDepth":1}`, "intact"},
		{`{"type":"session","version":0,"id":"kid","createdAt":1755000000000,"cwd":"C:\\app","parentSession":"s-1","origin":"subagent","delegationDepth":1,"agentPreset":"minimal"}`, "intact"},
		{` {"id":"s","type":"session","delegationDepth":0.0,"version":0e5,"createdAt":1e3} ` + "\r", "intact"},
		{`{"type":"session","version":-0,"id":"s","createdAt":1,"delegationDepth":0}`, "intact"},
		{`{"type":"session","version":0,"id":"s","createdAt":1,"delegationDepth":0,"timeZone":"UTC"}`, "intact fault 0x80 [timeZone]"},
		{`{"type":"session","version":0,"id":"s","createdAt":1,"delegationDepth":0,"sandboxMode":null,"approvalPolicy":1}`,
			"unsupported fault 0x180 [sandboxMode approvalPolicy] LOG-FORMAT the header holds sandboxMode and approvalPolicy, which only a development build wrote and no release reads"},
		{`{"type":"session","version":0,"id":"s","createdAt":1,"cwd":"a/b","delegationDepth":0,"parentSession":1,"seedLength":-1}`, "intact fault 0x70"},
		{`{"type":"session","version":0,"id":"s","createdAt":1,"cwd":null,"delegationDepth":0}`, "intact fault 0x8"},
		{`{"type":"session","version":0,"id":"s","createdAt":-5,"delegationDepth":0}`, "intact fault 0x4"},
		{`{"type":"session","version":1,"id":"s","createdAt":1,"delegationDepth":0}`, "intact"},
		{`{"type":"session","version":1,"id":"s","createdAt":1,"seedLength":1}`, "corrupt no header LOG-HEADER header record: delegationDepth is missing, which every header of generation 1 has"},
		{`{"type":"session","version":2,"id":"s","createdAt":1}`, "corrupt no header LOG-HEADER header record: delegationDepth is missing, which every header of generation 2 has"},
		{`{"type":"session","version":5,"id":"s","createdAt":1}`, "unsupported LOG-FORMAT format version 5: this build reads generations 0 to 4"},
		{`{"version":0.5}`, "unsupported LOG-FORMAT format version 0.5: this build reads generations 0 to 4"},
		{`{"version":1e999}`, "unsupported no header LOG-FORMAT format version 1e999: this build reads generations 0 to 4"},
		{`{"type":"session","version":0,"id":"s","createdAt":1.5,"delegationDepth":0,"agentPreset":"x"}`, "corrupt no header LOG-HEADER header record: createdAt must be a non-negative safe integer, got 1.5"},
		{`{"type":"session","version":0,"id":"s","createdAt":-0e9,"delegationDepth":0,"origin":"subagent"}`, "corrupt no header LOG-HEADER header record: createdAt must be a non-negative safe integer, got -0e9"},
		{`{"type":"session","version":0,"id":"s","createdAt":null}`, "corrupt no header LOG-HEADER header record: expected a number as createdAt, got null"},
		{`{"type":"session","version":0,"id":"s","createdAt":1,"origin":"subagent"}`, "corrupt no header LOG-HEADER header record: delegationDepth is missing, though origin was written only together with it"},
		{`{"type":"session","version":0,"id":"s","createdAt":1,"origin":null,"delegationDepth":0}`, "corrupt no header LOG-HEADER header record: origin must be absent or \"subagent\", got null"},
		{`{"type":"session","version":0,"id":"s","createdAt":1,"delegationDepth":-0}`, "corrupt no header LOG-HEADER header record: delegationDepth must be a non-negative safe integer, got -0"},
		{`{"type":"session","version":0,"id":"s","createdAt":1,"delegationDepth":null}`, "corrupt no header LOG-HEADER header record: delegationDepth must be a non-negative safe integer, got null"},
		{`{"type":"session","version":0,"createdAt":1,"delegationDepth":0}`, "corrupt no header LOG-HEADER header record: expected a string as id, got nothing"},
		{`{"type":"session","id":"s","createdAt":1,"delegationDepth":0}`, "corrupt no header LOG-HEADER header record: expected a number as version, got nothing"},
		// JSON of another kind: not damaged, but no log.
		{`[]`, "unreadable no header LOG-HEADER not a session log: expected an object, got an array"},
		{`null`, "unreadable no header LOG-HEADER not a session log: expected an object, got null"},
		{`{"version":{"x":1e999}}`, "unreadable no header LOG-HEADER not a session log: expected type \"session\", got nothing"},
		{`{"name":"x","version":"1.0.0","main":"x.js"}`, "unreadable no header LOG-HEADER not a session log: expected type \"session\", got nothing"},
		{`{"version":3,"sources":[],"names":[],"mappings":""}`, "unreadable no header LOG-HEADER not a session log: expected type \"session\", got nothing"},
		{`{"id":"a","createdAt":1750200000000,"name":"n"}`, "unreadable no header LOG-HEADER not a session log: expected type \"session\", got nothing"},
		{`{"id":"a","version":1,"name":"n","price":2}`, "unreadable no header LOG-HEADER not a session log: expected type \"session\", got nothing"},
		{`{"sessions":[{"type":"session","version":0,"id":"s","createdAt":1}]}`, "unreadable no header LOG-HEADER not a session log: expected type \"session\", got nothing"},
		{`{"type":"message","data":"d"}`, "unreadable no header LOG-HEADER not a session log: expected type \"session\", got \"message\""},
		{`{"version":0,"id":"s","createdAt":1,"delegationDepth":0}`, "corrupt no header LOG-HEADER header record: expected type \"session\", got nothing"},
		{`{"typ":"session","version":0,"id":"s","createdAt":1}`, "corrupt no header LOG-HEADER header record: expected type \"session\", got nothing"},
		{`{"id":"s","cwd":"/a","delegationDepth":0}`, "corrupt no header LOG-HEADER header record: expected type \"session\", got nothing"},
		{`{"type":"turn/start","seq":"0","time":1,"data":{"turn":1}}`, "corrupt no header LOG-HEADER header record: missing, the first line is an event with seq \"0\""},
		{`{"turn":1,"step":1,"request":{"messages":[]}}`, "unreadable no header LOG-HEADER not a session log: expected type \"session\", got nothing"},
		{`{"type":"sess","version":0,"id":"s"}`, "corrupt no header LOG-HEADER header record: expected type \"session\", got \"sess\""},
		{`{"type":"sess"}` + "\n" + `{"type":"turn/start","seq":0,"time":1,"data":{"turn":1}}`, "corrupt no header LOG-HEADER header record: expected type \"session\", got \"sess\""},
		{`{"type":"session","version":0,`, "corrupt no header LOG-HEADER header record: not valid JSON: expected key, got end of input"},
	} {
		l, _, _ := read(t, c.header+"\n")
		got := string(l.Class())
		if l.Header == nil {
			got += " no header"
		} else {
			if l.Header.Fault != 0 {
				got += fmt.Sprintf(" fault %#x", uint16(l.Header.Fault))
			}
			if l.Header.Unknown != nil {
				got += fmt.Sprint(" ", l.Header.Unknown)
			}
			if !jsjson.Canonical(l.Header.Raw) {
				t.Errorf("%s: raw is %s", c.header, l.Header.Raw)
			}
		}
		for _, d := range l.Defects() {
			got += " " + d.Rule + " " + d.Message
		}
		if got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.header, got, c.want)
		}
	}

	l, _, _ := read(t, `{"type":"session","version":0,"id":"k\ud800","createdAt":12,"cwd":"/a","parentSession":"p","seedLength":6,"origin":"subagent","delegationDepth":1,"agentPreset":"m"}`+"\n")
	h := l.Header
	if h.Version != 0 || h.ID != "k\xed\xa0\x80" || h.CreatedAt != 12 || *h.Cwd != "/a" || *h.ParentSession != "p" || h.Seed() != 6 ||
		*h.Origin != "subagent" || *h.DelegationDepth != 1 || *h.AgentPreset != "m" || h.Pos.Line != 1 || h.Pos.Length != 165 {
		t.Errorf("%+v", h)
	}
}

// TestNoLog opens what is no plain log of this generation.
func TestNoLog(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "jsonl corrupt LOG-HEADER the file is empty, expected a header record"},
		{"zstd", "\x28\xb5\x2f\xfd\x04", "zstd corrupt FRAME-HEADER the first frame is cut after 5 bytes, expected a complete one with the header record"},
		{"sqlite", "SQLite format 3\x00\x10", "sqlite unsupported LOG-FORMAT an SQLite database cannot be read from a stream"},
		{"zip", "PK\x03\x04", "zip unsupported LOG-FORMAT an archive cannot be read from a stream"},
		{"binary", "\x7fELF\x00\x00\n", "jsonl unreadable LOG-HEADER not a session log: binary data of no known kind"},
		{"prose", "# Title\n\ntext\n", "jsonl unreadable LOG-HEADER not a session log: not valid JSON: expected value, got '#'"},
		{"prose without end", "hello", "jsonl unreadable LOG-HEADER not a session log: not valid JSON: expected value, got 'h'"},
		{"indented JSON", "{\n  \"name\": 1\n}\n", "jsonl unreadable LOG-HEADER not a session log: not valid JSON: expected key or '}', got end of input"},
		{"a manifest", `{"name":"x","version":"1.0.0"}`, "jsonl unreadable LOG-HEADER not a session log: expected type \"session\", got nothing"},
		{"a laid out manifest", "{\n  \"version\": \"1.0.0\",\n  \"id\": \"x\"\n}\n", "jsonl unreadable LOG-HEADER not a session log: not valid JSON: expected key or '}', got end of input"},
		{"a laid out log", "{\n  \"type\": \"session\",\n  \"version\": 0\n}\n{\n", "jsonl unreadable LOG-HEADER not a session log: not valid JSON: expected key or '}', got end of input"},
		{"UTF-16", "\xff\xfe{\x00\"\x00", "jsonl unreadable LOG-HEADER not a session log: binary data of no known kind"},
		{"lines of another program", `{"type":"a","data":1}` + "\n" + `{"type":"b","data":2}` + "\n", "jsonl unreadable LOG-HEADER not a session log: expected type \"session\", got \"a\""},
		{"a fixture without header", `{"type":"turn/start","data":{"turn":1}}` + "\n" + `{"type":"turn/end","data":{"turn":1}}` + "\n", "jsonl corrupt LOG-HEADER header record: expected type \"session\", got \"turn/start\" LOG-SEQ the event has no seq, expected seq 0"},
		{"zeros before events", strings.Repeat("\x00", 70000) + "\n" + ev("a", 0) + "\n", "jsonl corrupt LOG-HEADER header record: not valid JSON: expected value, got 0x00"},
		{"zeros", strings.Repeat("\x00", 70000) + "\n", "jsonl unreadable LOG-HEADER not a session log: binary data of no known kind"},
		{"two broken lines before events", "x\ny\n" + ev("a", 0) + "\n", "jsonl corrupt LOG-HEADER header record: not valid JSON: expected value, got 'x' LINE-JSON not valid JSON: expected value, got 'y'"},
		{"half a header", `{"type":"sess`, "jsonl corrupt LOG-HEADER header record: cut after 13 bytes, expected the rest of it and a line feed"},
		{"broken header before events", "x\n" + ev("a", 0) + "\n", "jsonl corrupt LOG-HEADER header record: not valid JSON: expected value, got 'x'"},
		{"fixture", `{"type":"session","id":"s"}` + "\n" + `{"type":"turn/start","data":{"turn":1}}` + "\n",
			"golden corrupt LOG-HEADER header record: expected a number as createdAt, got nothing"},
		{"telemetry", ev("a", 0) + "\n" + ev("b", 1) + "\n", "jsonl corrupt LOG-HEADER header record: missing, the first line is an event with seq 0"},
	} {
		l, _, _ := read(t, c.text)
		got := string(l.Container) + " " + string(l.Class())
		for _, d := range l.Defects() {
			got += " " + d.Rule + " " + d.Message
		}
		if got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
	for text, want := range map[string]string{
		`{"name":"x"}`:                    noLogHint,
		"{\n  \"type\": \"session\"\n}\n": "this is JSON over several lines; a log holds one object a line, and `jq -c .` makes it so again if some program has laid it out",
		"\xff\xfe{\x00":                   "the file begins like text in UTF-16; if some program converted a log, convert it back to UTF-8 without byte order mark",
	} {
		if l, _, _ := read(t, text); len(l.Defects()) != 1 || l.Defects()[0].Hint != want {
			t.Errorf("%q: %v", text, l.Defects())
		}
	}
	// Events are read even so, when there are any.
	if l, seqs, _ := read(t, ev("a", 0)+"\n"+ev("turn/end", 1)+"\n"); fmt.Sprint(seqs) != "[0 1]" || l.Kept() != 0 || l.Committed() != 0 {
		t.Errorf("events %v, kept %d", seqs, l.Kept())
	}
	if _, seqs, _ := read(t, "x\n"+ev("a", 0)+"\n"); fmt.Sprint(seqs) != "[0]" {
		t.Errorf("events %v", seqs)
	}
}

func TestReadErrors(t *testing.T) {
	broken := errors.New("disk gone")
	if _, err := NewReader(io.MultiReader(strings.NewReader(testHeader[:13]), iotest.ErrReader(broken)), "log", Options{}); !errors.Is(err, broken) {
		t.Errorf("open: %v", err)
	}
	long := testHeader + "\n"
	for i := range 40 {
		long += ev("a", i) + "\n"
	}
	l, err := NewReader(io.MultiReader(strings.NewReader(long), strings.NewReader(`{"typ`), iotest.ErrReader(broken)), "log", Options{})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, d := range l.Events() {
		if d == nil {
			n++
		} else if !errors.Is(d, broken) || d.Error() != fmt.Sprintf("log: seq 40: byte %d: reading failed: disk gone", len(long)) {
			t.Error(d)
		}
	}
	if n != 40 || l.Class() != Unreadable || l.Kept() != 40 {
		t.Errorf("%d events, %s, kept %d", n, l.Class(), l.Kept())
	}

	// A stream is gone once it was read.
	l, _, _ = read(t, text(sound()))
	for e, d := range l.Events() {
		if e != nil || d.Rule != RuleRead || d.Message != "reading failed: a stream can be read only once" {
			t.Error(e, d)
		}
	}

	if _, err := OpenFile(t.TempDir(), Options{}); err == nil || !strings.HasSuffix(err.Error(), ": is a directory") {
		t.Error(err)
	}
	if _, err := OpenFile("does-not-exist", Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestOpenDirectory(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"session.jsonl", "session.packed.jsonl", "b/session.jsonl", "a/session.child1.jsonl",
		"a/events.jsonl", "session.jsonl.zstd", "note.txt", ".dsh-mkdir-x/session.jsonl"} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text(sound())), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("session.jsonl", filepath.Join(dir, "session.link.jsonl")); err != nil {
		t.Logf("no symbolic links here: %v", err)
	}
	var got, skipped []string
	rel := func(p string) string {
		r, err := filepath.Rel(dir, p)
		if err != nil {
			t.Fatal(err)
		}
		return filepath.ToSlash(r)
	}
	for l, err := range Open(dir, Options{Skip: func(p, reason string) {
		if !strings.Contains(p, "link") {
			skipped = append(skipped, rel(p)+": "+reason)
		}
	}}) {
		if err != nil {
			t.Fatal(err)
		}
		for range l.Events() {
		}
		got = append(got, fmt.Sprint(rel(l.Path), " ", l.Kept()))
	}
	if diff := cmp.Diff([]string{"a/session.child1.jsonl 8", "b/session.jsonl 8", "session.jsonl 8", "session.jsonl.zstd 0", "session.packed.jsonl 8"}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{".dsh-mkdir-x: staging directory", "a/events.jsonl: not named session*.jsonl or session*.jsonl.zstd",
		"note.txt: not named session*.jsonl or session*.jsonl.zstd"}, skipped); diff != "" {
		t.Error(diff)
	}
	for l, err := range Open(filepath.Join(dir, "nowhere"), Options{}) {
		if l != nil || !errors.Is(err, os.ErrNotExist) {
			t.Error(l, err)
		}
	}
	// Opened and dropped half-way: nothing is left open that a second pass needs.
	for l, err := range Open(filepath.Join(dir, "session.jsonl"), Options{}) {
		if err != nil {
			t.Fatal(err)
		}
		for range l.Events() {
			break
		}
		n := 0
		for range l.Events() {
			n++
		}
		if n != 8 || l.Kept() != 8 {
			t.Errorf("%d events in the second pass", n)
		}
	}
}

func TestEnvelope(t *testing.T) {
	for _, c := range []struct {
		line  string
		fault EnvelopeFault
		facts jsjson.Facts
		json  string
	}{
		{`{"type":"a","seq":0,"time":1,"data":null}`, 0, 0, ""},
		{`{"type":"a","seq":0,"time":1,"data":{},"ignorable":true}`, 0, 0, ""},
		{`{"type":"a","seq":0,"time":1,"data":{},"ignorable":false}`, FaultIgnorable, 0, ""},
		{`{"type":"a","seq":0,"time":1}`, FaultNoData, 0, ""},
		{`{"type":5,"seq":0,"time":1,"data":1}`, FaultType, 0, ""},
		{`{"seq":0,"time":1,"data":1}`, FaultType, 0, ""},
		{`{"type":"a","seq":0,"time":-1,"data":1}`, FaultTimeNeg, 0, ""},
		{`{"type":"a","seq":0,"time":1.5,"data":1}`, FaultTime, 0, ""},
		{`{"type":"a","seq":0,"time":9007199254740992,"data":1}`, FaultTime, 0, ""},
		{`{"type":"a","seq":0,"data":1}`, FaultTime, 0, ""},
		{`{"type":"a","seq":0,"time":1,"data":1,"seq0":0,"x":1}`, FaultExtraKey, 0, ""},
		{`{"type":"a","seq":0,"time":1,"data":1,"surfaceOp":"append"}`, 0, 0, ""},
		{`{"type":"a","seq":0,"time":1,"data":1,"surfaceOp":"prepend"}`, FaultOp, 0, ""},
		{`{"type":"a","seq":0,"time":1,"data":1,"surfaceOp":null}`, FaultOp, 0, ""},
		{`{"type":"a","seq":0,"time":1,"data":1,"surfaceOp":{"end":4,"op":"replace","start":3}}`, 0, 0, ""},
		{`{"type":"a","seq":0,"time":1,"data":1,"surfaceOp":{"op":"replace","start":3,"end":4,"x":1}}`, FaultOp, 0, ""},
		{`{"type":"a","seq":0,"time":1,"data":1,"surfaceOp":{"op":"replace","start":3,"end":-4}}`, FaultOp, 0, ""},
		{`{"type":"a","seq":0,"time":1,"data":1,"surfaceOp":{"op":"replace","start":3}}`, FaultOp, 0, ""},
		{`{"type":"a","seq":0,"time":1,"data":1,"sourceEventSeqs":[]}`, 0, 0, ""},
		{`{"type":"a","seq":0,"time":1,"data":1,"sourceEventSeqs":[1,9007199254740991]}`, 0, 0, ""},
		{`{"type":"a","seq":0,"time":1,"data":1,"sourceEventSeqs":[1,-1]}`, FaultSources, 0, ""},
		{`{"type":"a","seq":0,"time":1,"data":1,"sourceEventSeqs":["1"]}`, FaultSources, 0, ""},
		{`{"type":"a","seq":0,"time":1,"data":1,"sourceEventSeqs":{}}`, FaultSources, 0, ""},
		{`{"type":"a","seq":0,"time":1,"data":1,"sourceEventSeqs":[[1,3],7]}`, FaultSourceRuns, 0, ""},
		{`{"type":"a","seq":0,"time":1,"data":1,"sourceEventSeqs":[[3,1]]}`, FaultSources, 0, ""},
		{`{"type":"a","seq":0,"time":1,"data":1,"sourceEventSeqs":[[1,2,3]]}`, FaultSources, 0, ""},
		{`{"type":"a","seq":0,"time":1,"data":1,"sourceEventSeqs":[[]]}`, FaultSources, 0, ""},
		{"{\"type\":\"a\", \"seq\":0,\"time\":1,\"data\":1}\r", 0, jsjson.Whitespace, `{"type":"a","seq":0,"time":1,"data":1}`},
		{`{"seq":7,"type":"a","seq":0,"time":1,"data":1}`, 0, jsjson.DuplicateKey, `{"seq":0,"type":"a","time":1,"data":1}`},
		{`{"type":"\u0061","seq":0e1,"time":1,"data":{"b":1,"1":2}}`, 0, jsjson.EscapeForm | jsjson.NumberForm | jsjson.KeyOrder, `{"type":"a","seq":0,"time":1,"data":{"1":2,"b":1}}`},
		{"{\"type\":\"a\",\"seq\":0,\"time\":1,\"data\":\"\xff\"}", 0, jsjson.BadUTF8, "{\"type\":\"a\",\"seq\":0,\"time\":1,\"data\":\"\ufffd\"}"},
	} {
		l, err := NewReader(strings.NewReader(testHeader+"\n"+c.line+"\n"), "log", Options{})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for e, d := range l.Events() {
			if d != nil {
				if d.Class != Unsupported {
					t.Errorf("%s: %v", c.line, d)
				}
				continue
			}
			n++
			want := c.json
			if want == "" {
				want = c.line
			}
			if e.Fault != c.fault || jsjson.Facts(e.Facts) != c.facts || string(e.JSON) != want || string(e.Line) != c.line {
				t.Errorf("%s: fault %#x facts %#x %s", c.line, e.Fault, e.Facts, e.JSON)
			}
			if e.Pos != (Position{Line: 2, Offset: int64(len(testHeader) + 1), Length: int64(len(c.line) + 1), Frame: -1, FrameAt: -1, Row: -1, Member: -1}) || e.Pos.EventLine() != 1 {
				t.Errorf("%s: %+v", c.line, e.Pos)
			}
			k := e.Clone()
			if diff := cmp.Diff(e, k); diff != "" {
				t.Error(diff)
			}
			clear(e.JSON) // a clone shares nothing
			if string(k.JSON) != want || k.Data != nil && string(k.Data) != string(jsjson.Get(k.JSON, "data")) {
				t.Errorf("%s: the clone changed", c.line)
			}
		}
		if n != 1 {
			t.Errorf("%s: %d events", c.line, n)
		}
	}
}

func TestOps(t *testing.T) {
	e := Event{Op: []byte(`{"op":"replace","start":3,"end":14}`), Sources: []byte(`[3,7,14]`)}
	if op, ok := e.Replace(); !ok || op != (ReplaceOp{Start: 3, End: 14}) {
		t.Error(op, ok)
	}
	if s, ok := e.SourceSeqs([]int64{1}); !ok || fmt.Sprint(s) != "[1 3 7 14]" {
		t.Error(s, ok)
	}
	e = Event{Op: []byte(`"append"`), Sources: []byte(`[3,"x"]`)}
	if op, ok := e.Replace(); !ok || op != (ReplaceOp{Append: true}) {
		t.Error(op, ok)
	}
	if s, ok := e.SourceSeqs([]int64{1}); ok || fmt.Sprint(s) != "[1]" {
		t.Error(s, ok)
	}
	e = Event{}
	if _, ok := e.Replace(); ok {
		t.Error("an op out of nothing")
	}
	if _, ok := e.SourceSeqs(nil); ok {
		t.Error("sources out of nothing")
	}
	e = Event{Type: "a", Seq: 1, Time: -2, Data: []byte("{}"), Op: []byte(`"append"`), Sources: []byte("[0]"), Ignorable: true}
	if got, want := string(AppendEvent(nil, &e)), `{"type":"a","seq":1,"time":-2,"data":{},"sourceEventSeqs":[0],"surfaceOp":"append","ignorable":true}`; got != want {
		t.Error(got)
	}
}

// TestPackedPositions looks at the members of a row as they come.
func TestPackedPositions(t *testing.T) {
	rowLine := `{"type":"text-chunks","seq0":0,"time0":5,"data":{"turn":1,"step":1,"index":0,"dt":[2,-4,0],"texts":["a","b\n","","d"]}}`
	l, err := NewReader(strings.NewReader(testHeader+"\n"+rowLine+"\n"), "log", Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for e, d := range l.Events() {
		if d != nil {
			t.Fatal(d)
		}
		if string(e.Line) != rowLine || e.Pos.Line != 2 || e.Pos.Length != int64(len(rowLine)+1) {
			t.Errorf("%+v %s", e.Pos, e.Line)
		}
		got = append(got, fmt.Sprintf("%d %d %d %s", e.Pos.Member, e.Seq, e.Time, e.Data))
	}
	want := []string{
		`0 0 5 {"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"a"}}`,
		`1 1 7 {"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"b\n"}}`,
		`2 2 3 {"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":""}}`,
		`3 3 3 {"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"d"}}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestPackerBatches ends batches inside a run of chunks.
func TestPackerBatches(t *testing.T) {
	chunk := func(seq int) []byte {
		return fmt.Appendf(nil, `{"type":"assistant/chunk","seq":%d,"time":%d,"data":{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"x"}}}`, seq, seq)
	}
	var p Packer
	var out []byte
	for seq := range 8 {
		out = p.Add(out, chunk(seq))
		if seq == 3 || seq == 5 {
			out = p.Flush(out)
		}
	}
	out = p.Flush(out)
	want := `{"type":"text-chunks","seq0":0,"time0":0,"data":{"turn":1,"step":1,"index":0,"dt":[1,1,1],"texts":["x","x","x","x"]}}` + "\n" +
		string(chunk(4)) + "\n" + string(chunk(5)) + "\n" + string(chunk(6)) + "\n" + string(chunk(7)) + "\n"
	if diff := cmp.Diff(want, string(out)); diff != "" {
		t.Error(diff)
	}
}

// TestStandardInput reads a log through a pipe.
func TestStandardInput(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	stdin := os.Stdin
	os.Stdin = r
	defer func() { os.Stdin = stdin }()
	go func() {
		io.WriteString(w, text(sound()))
		w.Close()
	}()
	n := 0
	for l, err := range Open("-", Options{}) {
		if err != nil {
			t.Fatal(err)
		}
		for range l.Events() {
		}
		if l.Path != "-" || l.Kept() != 8 || l.Class() != Intact {
			t.Errorf("%s: %s, kept %d", l.Path, l.Class(), l.Kept())
		}
		n++
	}
	if n != 1 {
		t.Errorf("%d logs", n)
	}
	if _, err := r.Stat(); err != nil {
		t.Errorf("standard input was closed: %v", err)
	}
}

// TestStrictRegion marks the records of a source as lying where any damage is
// corruption.
func TestStrictRegion(t *testing.T) {
	for _, strict := range []bool{false, true} {
		l := &Log{Path: "log"}
		src := newLineSource(strings.NewReader(text(sound())+"{\n"), nil)
		src.place = func(p Position) (Position, bool) {
			p.Frame = 3
			return p, strict
		}
		if err := l.openLines(src); err != nil {
			t.Fatal(err)
		}
		for e, d := range l.Events() {
			if e != nil && e.Pos.Frame != 3 || d != nil && d.Pos.Frame != 3 {
				t.Error(e, d)
			}
		}
		if want := map[bool]Class{false: Torn, true: Corrupt}[strict]; l.Class() != want {
			t.Errorf("strict %v: %s", strict, l.Class())
		}
	}
}

// TestLines reads lines longer than any buffer, and looks ahead of them.
func TestLines(t *testing.T) {
	var want []string
	for i := range 40 {
		want = append(want, strings.Repeat(string(rune('a'+i%26)), (i*7919)%200_000))
	}
	stream := strings.Join(want, "\n")
	for name, r := range map[string]io.Reader{
		"whole":     strings.NewReader(stream),
		"halves":    iotest.HalfReader(strings.NewReader(stream)),
		"in pieces": &chunked{[]byte(stream), 3},
	} {
		l := lineReader{r: r}
		off := int64(0)
		for i, w := range want {
			line, torn, err := l.next()
			if err != nil || string(line) != w || torn != (i == len(want)-1) || l.offset() != off || l.line != int64(i+1) {
				t.Fatalf("%s: line %d: %d bytes, torn %v, %v, offset %d, want %d", name, i, len(line), torn, err, l.offset(), off)
			}
			off += int64(len(w) + 1)
			if i%3 == 0 {
				next, ok := l.peek()
				if ok != (i+2 < len(want)) || ok && string(next) != want[i+1] {
					t.Fatalf("%s: line %d: peek %v, %d bytes", name, i, ok, len(next))
				}
				if string(line) != w || l.offset() != off-int64(len(w)+1) {
					t.Fatalf("%s: line %d changed under peek", name, i)
				}
			}
		}
		if _, _, err := l.next(); err != io.EOF {
			t.Fatal(err)
		}
	}
	l := lineReader{r: stuck{}}
	if _, _, err := l.next(); err != io.ErrNoProgress {
		t.Error(err)
	}
}

type stuck struct{}

func (stuck) Read([]byte) (int, error) { return 0, nil }

// TestNoAllocation wants reading to cost no allocation per event.
func TestNoAllocation(t *testing.T) {
	count := func(log []byte) float64 {
		return testing.AllocsPerRun(5, func() {
			l, err := NewReader(bytes.NewReader(log), "log", Options{})
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range l.Events() {
				if d != nil {
					t.Fatal(d)
				}
			}
		})
	}
	fewPlain, fewPacked := synthetic(3)
	manyPlain, manyPacked := synthetic(30)
	if a, b := count(fewPlain), count(manyPlain); a != b {
		t.Errorf("%v allocations for 615 events, %v for 6150", a, b)
	}
	if a, b := count(fewPacked), count(manyPacked); a != b {
		t.Errorf("packed: %v allocations for 615 events, %v for 6150", a, b)
	}
}

// A header record with one byte changed, lost or added, or one member lost, is a
// damaged log, or a sound one; never is it said to be no log. It need not have any
// events behind it, nor a line feed.
func TestDamagedHeaderIsALog(t *testing.T) {
	for _, h := range []string{
		`{"type":"session","version":1,"id":"s-1","createdAt":1750200000000}`,
		`{"type":"session","version":0,"id":"s-1","createdAt":1750600000000,"cwd":"/srv/app"}`,
		`{"type":"session","version":0,"id":"kid","createdAt":1755000000000,"cwd":"/srv/app","parentSession":"s-1","seedLength":3,"origin":"subagent","delegationDepth":1,"agentPreset":"minimal"}`,
		`{"type":"session","version":3,"id":"s","createdAt":1755000000000,"cwd":"/srv/app","isSeeded":false,"delegationDepth":0}`,
	} {
		n := 0
		check := func(damaged string) {
			n++
			for _, end := range []string{"", "\n"} {
				if l, _, _ := read(t, damaged+end); l.Class() == Unreadable {
					t.Errorf("%q: %v", damaged+end, l.Defects())
				}
			}
		}
		for i := range h {
			if i > 0 { // what begins otherwise is not even JSON of this kind
				check(h[:i] + h[i+1:])
			}
			for _, c := range "x\"\x00\x80{},7 " {
				if i > 0 {
					check(h[:i] + string(c) + h[i+1:])
				}
				check(h[:i] + string(c) + h[i:])
			}
		}
		var keep []string
		members := strings.Split(h[1:len(h)-1], ",")
		for i := range members {
			keep = append(append(keep[:0], members[:i]...), members[i+1:]...)
			check("{" + strings.Join(keep, ",") + "}")
		}
		t.Logf("%d damaged headers", n)
	}
}
