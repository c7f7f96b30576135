package invariants

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// The verdict on a log does not depend on whether its pieces of text were
// recognised when it was read: without the mark every event is taken member by
// member.
func TestPiecesWithoutMark(t *testing.T) {
	logs, pieces := 0, 0
	err := filepath.WalkDir(filepath.Join("..", "..", "goldens"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".jsonl") {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(data, []byte("-delta")) && !bytes.Contains(data, []byte("-chunks")) {
			return err
		}
		open := func() *logfmt.Log {
			log, err := logfmt.NewReader(bytes.NewReader(data), path, logfmt.Options{})
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			return log
		}
		want, err := Check(context.Background(), open(), Options{})
		if err != nil {
			t.Fatalf("%s: %v", path, err)
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
		}
		got := c.conclude()
		c.settle(got)
		c.lineage.close()
		if d := cmp.Diff(want, got, cmp.AllowUnexported(Finding{}), sameError); d != "" {
			t.Errorf("%s (-with +without):\n%s", path, d)
		}
		logs++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if logs < 20 || pieces < 200 {
		t.Errorf("%d logs with %d pieces: too few to show anything", logs, pieces)
	}
	t.Logf("%d logs, %d pieces", logs, pieces)
}
