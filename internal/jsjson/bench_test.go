package jsjson

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// logLines is a log of one user message and a few tool calls: short lines.
func logLines(tb testing.TB) [][]byte {
	tb.Helper()
	b, err := os.ReadFile("testdata/log.jsonl")
	if err != nil {
		tb.Fatal(err)
	}
	return bytes.Split(bytes.TrimSuffix(b, []byte("\n")), []byte("\n"))
}

// wideLines are events of about a kilobyte, half of it text with escapes, CJK
// and emoji.
func wideLines() [][]byte {
	text := `A quay in the north.\nBells: \"three\"\t時計は正午を打つ、港は静かだ。` + "\U0001F30A" + `\\ grüße from the pier, tide 2.75 m; `
	line := `{"type":"assistant/message","seq":1234,"time":1795980649370,"data":{"turn":3,"step":7,"message":{"role":"assistant","content":[{"type":"text","text":"` +
		strings.Repeat(text, 4) + `"},{"type":"tool-call","id":"tide-1","name":"tide_table","arguments":"{\"quay\":\"North\",\"hours\":6}"}]},"usage":{"input":10293,"output":512,"ratio":0.125}},"surfaceOp":"append"}`
	return [][]byte{[]byte(line)}
}

func benchLines(b *testing.B, lines [][]byte, f func([]byte)) {
	var size int64
	for _, l := range lines {
		size += int64(len(l)) + 1
	}
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		for _, l := range lines {
			f(l)
		}
	}
}

func BenchmarkCanonical(b *testing.B) {
	check := func(l []byte) {
		if !Canonical(l) {
			panic("log line is not canonical")
		}
	}
	b.Run("log", func(b *testing.B) { benchLines(b, logLines(b), check) })
	b.Run("wide", func(b *testing.B) { benchLines(b, wideLines(), check) })
	// DSH_LOG names a larger log to measure.
	if name := os.Getenv("DSH_LOG"); name != "" {
		b.Run("file", func(b *testing.B) {
			data, err := os.ReadFile(name)
			if err != nil {
				b.Fatal(err)
			}
			benchLines(b, bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n")), check)
		})
	}
}

// Every number, string and space differs from its canonical form.
func BenchmarkStringify(b *testing.B) {
	lines := wideLines()
	for i, l := range lines {
		l = bytes.ReplaceAll(l, []byte(":"), []byte(": "))
		lines[i] = bytes.ReplaceAll(l, []byte("/"), []byte(`\/`))
	}
	buf := make([]byte, 0, 4096)
	benchLines(b, lines, func(l []byte) {
		var err error
		if buf, _, err = AppendStringify(buf[:0], l); err != nil {
			panic(err)
		}
	})
}

func BenchmarkStringifyArrange(b *testing.B) {
	line := []byte(`{"b":1,"2":{"x":[1,2,3],"1":true,"0":false},"a":"text","1":null,"b":2}`)
	buf := make([]byte, 0, 4096)
	benchLines(b, [][]byte{line}, func(l []byte) { buf, _, _ = AppendStringify(buf[:0], l) })
}

func BenchmarkFields(b *testing.B) {
	keys := []string{"type", "seq", "time", "data", "surfaceOp"}
	var dst [5][]byte
	f := func(l []byte) { Fields(l, dst[:], keys) }
	b.Run("log", func(b *testing.B) { benchLines(b, logLines(b), f) })
	b.Run("wide", func(b *testing.B) { benchLines(b, wideLines(), f) })
}

func BenchmarkNumber(b *testing.B) {
	var buf [32]byte
	for b.Loop() {
		AppendNumber(buf[:0], 2.2250738585072014e-308)
		AppendNumber(buf[:0], 1795980649370)
		AppendNumber(buf[:0], 0.125)
	}
}

func BenchmarkCheckFields(b *testing.B) {
	keys := []string{"type", "seq", "time", "data", "surfaceOp"}
	var dst [5][]byte
	f := func(l []byte) { CheckFields(l, dst[:], keys) }
	b.Run("log", func(b *testing.B) { benchLines(b, logLines(b), f) })
	b.Run("wide", func(b *testing.B) { benchLines(b, wideLines(), f) })
}
