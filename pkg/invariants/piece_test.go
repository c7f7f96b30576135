package invariants

import (
	"bytes"
	"context"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// withoutMark judges a log read ahead, and one whose pieces were not recognised when it was read: every
// event is taken member by member, and no run is found. It returns how many pieces
// there were.
func withoutMark(t *testing.T, name string, data []byte) (pieces int) {
	t.Helper()
	open := func() *logfmt.Log {
		log, err := logfmt.NewReader(bytes.NewReader(data), name, logfmt.Options{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return log
	}
	want, err := Check(context.Background(), open(), Options{})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	ahead, err := Check(context.Background(), open(), Options{Ahead: true})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if d := cmp.Diff(want, ahead, cmp.AllowUnexported(Finding{}), sameError); d != "" {
		t.Errorf("%s (-alone +ahead):\n%s", name, d)
	}
	log := open()
	c := newContext(log, Options{MaxPerRule: defaultMaxPerRule})
	for e, d := range log.Events() {
		if d != nil {
			c.defect(d)
			continue
		}
		if e.IsPiece() {
			pieces++
		}
		e.Mark = logfmt.PieceMark{}
		c.load(e)
		if c.run.on {
			t.Fatalf("%s: seq %d is in a run without a mark", name, e.Seq)
		}
	}
	got := c.conclude()
	c.settle(got)
	c.lineage.close()
	if d := cmp.Diff(want, got, cmp.AllowUnexported(Finding{}), sameError); d != "" {
		t.Errorf("%s (-with +without):\n%s", name, d)
	}
	return pieces
}

// The verdict on a log does not depend on whether its pieces were recognised, nor
// on whether it was read ahead, be
// the log sound, damaged, or changed at random in the middle of its runs.
func TestPiecesWithoutMark(t *testing.T) {
	logs, pieces, changed, times := 0, 0, 0, 12
	if corpus.Race {
		times = 2
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	err := filepath.WalkDir(filepath.Join("..", "..", "goldens"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".jsonl") {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(data, []byte("-delta")) && !bytes.Contains(data, []byte("-chunks")) {
			return err
		}
		logs++
		pieces += withoutMark(t, path, data)
		for range times {
			if len(data) < 1<<17 {
				changed++
				pieces += withoutMark(t, path+" changed", disturb(rnd, data))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if logs < 20 || pieces < 2000 || changed < 200 {
		t.Errorf("%d logs, %d of them changed, with %d pieces: too few to show anything", logs, changed, pieces)
	}
	t.Logf("%d logs, and %d changed ones, %d pieces", logs, changed, pieces)
}

// disturb changes a few lines of a log that are pieces, or where one stands.
func disturb(rnd *rand.Rand, data []byte) []byte {
	lines := bytes.SplitAfter(bytes.Clone(data), []byte("\n"))
	var chunks []int
	for i, l := range lines {
		if i > 0 && bytes.Contains(l, []byte("-delta")) || bytes.Contains(l, []byte("-chunks")) {
			chunks = append(chunks, i)
		}
	}
	if len(chunks) == 0 {
		return data
	}
	swap := func(l []byte, old, new string) []byte { return bytes.Replace(l, []byte(old), []byte(new), 1) }
	for range 1 + rnd.IntN(3) {
		i := chunks[rnd.IntN(len(chunks))]
		j := chunks[rnd.IntN(len(chunks))]
		switch l := lines[i]; rnd.IntN(14) {
		case 0:
			lines[i], lines[j] = lines[j], l
		case 1:
			lines[i] = nil
		case 2:
			lines[i] = append(bytes.Clone(l), l...)
		case 3:
			lines[i] = swap(l, `"time":1`, `"time":`)
		case 4:
			lines[i] = swap(l, `"turn":1`, `"turn":2`)
		case 5:
			lines[i] = swap(l, `"step":1`, `"step":3`)
		case 6:
			lines[i] = swap(l, `"index":0`, `"index":1`)
		case 7:
			lines[i] = swap(l, `"text":"`, `"text":"\ud83c`)
		case 8:
			lines[i] = swap(l, `,"time"`, ` ,"time"`)
		case 9:
			lines[i] = swap(l, `"data"`, `"ignorable":true,"data"`)
		case 10:
			lines[i] = swap(l, `"data"`, `"sourceEventSeqs":[1],"data"`)
		case 11:
			lines[i] = swap(l, `-delta","index":0`, `-delta","index":0,"more":1`)
		case 12:
			lines[i] = swap(l, `"text-delta"`, `"reasoning-delta"`)
		case 13:
			lines[i] = swap(l, `"text":"`, "\"text\":\"\xff")
		}
	}
	return bytes.Join(lines, nil)
}
