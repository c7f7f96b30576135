package invariants

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/zframe"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Each rule about frames has a log of three frames that breaks it in one place.
func TestFrames(t *testing.T) {
	const head = `{"type":"session","version":0,"id":"s-1","createdAt":1755000000000,"cwd":"/srv/app","delegationDepth":0}` + "\n"
	turns := []string{
		`{"type":"turn/start","seq":0,"time":1,"data":{"turn":1}}` + "\n" + `{"type":"turn/end","seq":1,"time":2,"data":{"turn":1,"reason":{"kind":"completed"}}}` + "\n",
		`{"type":"turn/start","seq":2,"time":3,"data":{"turn":2}}` + "\n" + `{"type":"turn/end","seq":3,"time":4,"data":{"turn":2,"reason":{"kind":"completed"}}}` + "\n",
	}
	enc := zframe.NewEncoder()
	frame := func(text string) []byte { return enc.Append(nil, []byte(text)) }
	base := [][]byte{frame(head), frame(turns[0]), frame(turns[1])}
	join := func(fs ...[]byte) []byte { return bytes.Join(fs, nil) }
	with := func(i, at int, b byte) []byte {
		f := bytes.Clone(base[i])
		if at < 0 {
			at += len(f)
		}
		f[at] ^= b
		return f
	}
	judge := func(r io.Reader, name string) *Result {
		t.Helper()
		log, err := logfmt.NewReader(r, name, logfmt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		res, err := Check(context.Background(), log, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	if res := judge(bytes.NewReader(join(base...)), "log.jsonl.zstd"); res.Verdict != OK || len(res.Findings) != 0 {
		t.Fatalf("the sound log: %s, %v", res.Verdict, lines(res, true))
	}
	for _, c := range []struct {
		name    string
		file    []byte
		want    []string
		verdict Verdict
	}{
		{"junk behind", append(join(base...), "junk"...), []string{"FRAME-MAGIC error 6 4"}, Corrupt},
		{"reserved bit", join(base[0], with(1, 4, 0x08), base[2]), []string{"FRAME-RESERVED error 2 0"}, Corrupt},
		{"skippable", join(base[0], base[1], []byte{0x50, 0x2A, 0x4D, 0x18, 0, 0, 0, 0}, base[2]), []string{"FRAME-SKIP error 4 2"}, Corrupt},
		{"checksum", join(base[0], base[1], with(2, -1, 1)), []string{"FRAME-DATA error 4 2"}, Corrupt},
		{"one frame", frame(head + turns[0]), []string{"FRAME-HEADER error 1 -1"}, Corrupt},
		{"half a record", join(base[0], base[1], frame(turns[1][:20])), []string{"FRAME-LINE error 4 2"}, Corrupt},
		{"cut", join(base...)[:len(join(base...))-60], []string{"FRAME-TORN warning 4 2"}, Torn},
	} {
		res := judge(bytes.NewReader(c.file), "log.jsonl.zstd")
		if d := cmp.Diff(c.want, lines(res, false)); d != "" || res.Verdict != c.verdict {
			t.Errorf("%s: verdict %s, want %s; findings (-want +got):\n%s", c.name, res.Verdict, c.verdict, d)
		}
	}

	long := io.MultiReader(strings.NewReader(head+turns[0]), io.LimitReader(zeros{}, logfmt.MaxLine+1), strings.NewReader("\n"+turns[1]))
	res := judge(long, "log.jsonl")
	if d := cmp.Diff([]string{"LINE-LONG error 4 2"}, lines(res, false)); d != "" || res.Verdict != Unsupported {
		t.Errorf("long line: verdict %s; findings (-want +got):\n%s", res.Verdict, d)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}
