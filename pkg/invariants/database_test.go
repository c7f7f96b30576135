package invariants

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ncruces/go-sqlite3"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// judged is what must not depend on the container of a log.
type judged struct {
	Verdict  string
	Events   int64
	Requests RequestCounts
	Findings []string // errors and warnings
	Sums     []string // of the requests
}

func judgedAlike(t *testing.T, log *logfmt.Log) judged {
	t.Helper()
	res, err := Check(context.Background(), log, Options{})
	if err != nil {
		t.Fatal(err)
	}
	j := judged{Verdict: string(res.Verdict), Events: res.Events, Requests: res.Requests}
	for _, f := range res.Findings {
		if f.Severity != Note {
			j.Findings = append(j.Findings, fmt.Sprintf("%s %d %s", f.Rule, f.Seq, f.Message))
		}
	}
	for r, err := range fold.Requests(log, fold.Options{}) {
		if err != nil {
			j.Sums = append(j.Sums, err.Error())
			continue
		}
		j.Sums = append(j.Sums, fmt.Sprintf("%d %x %s", r.Len(), r.Sum(), r.Grade))
	}
	return j
}

// A log in a database gets the verdict and the requests of its lines.
func TestCorpusDatabases(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	n, requests := 0, 0
	for _, part := range []string{"head", "july", "big"} {
		files, err := filepath.Glob(filepath.Join(dir, part, "*", "session*.sqlite"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			if damagedCase(filepath.Base(filepath.Dir(path))) {
				continue
			}
			name, _ := filepath.Rel(dir, path)
			plain, err := logfmt.OpenFile(strings.TrimSuffix(path, ".sqlite")+".jsonl", logfmt.Options{})
			if err != nil {
				t.Fatal(err)
			}
			stored, err := logfmt.OpenFile(path, logfmt.Options{Session: plain.Header.ID})
			if err != nil {
				t.Fatal(err)
			}
			want, got := judgedAlike(t, plain), judgedAlike(t, stored)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
			n, requests = n+1, requests+len(got.Sums)
		}
	}
	t.Logf("%d databases, %d requests", n, requests)
	if n < 140 || requests < 700 {
		t.Errorf("too few: %d databases, %d requests", n, requests)
	}
}

// soundLog is a session with one turn, as the newest harness writes it.
var soundLog = []string{
	`{"type":"turn/start","seq":0,"time":1,"data":{"turn":1}}`,
	`{"type":"step/start","seq":1,"time":2,"data":{"turn":1,"step":1}}`,
	`{"type":"user/message","seq":2,"time":3,"data":{"content":[{"type":"text","text":"hi"}],"source":{"kind":"user"},"role":"user","id":"u-1"},"surfaceOp":"append"}`,
	`{"type":"request/header","seq":3,"time":4,"data":{"header":{"config":{"provider":"p","model":"m"}},"reason":"initial"}}`,
	`{"type":"assistant/chunk","seq":4,"time":5,"data":{"turn":1,"step":1,"chunk":{"type":"block-start","index":0,"blockType":"text"}}}`,
	`{"type":"assistant/chunk","seq":5,"time":6,"data":{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"a fig"}}}`,
	`{"type":"assistant/chunk","seq":6,"time":7,"data":{"turn":1,"step":1,"chunk":{"type":"block-end","index":0,"block":{"type":"text","text":"a fig"}}}}`,
	`{"type":"assistant/chunk","seq":7,"time":8,"data":{"turn":1,"step":1,"chunk":{"type":"finish","reason":{"kind":"stop"}}}}`,
	`{"type":"assistant/message","seq":8,"time":9,"data":{"turn":1,"step":1,"message":{"role":"assistant","content":[{"type":"text","text":"a fig"}],"source":{"kind":"model","provider":"p","model":"m"},"id":"a-1"}},"sourceEventSeqs":[4,5,6,7],"surfaceOp":"append"}`,
	`{"type":"step/end","seq":9,"time":10,"data":{"turn":1,"step":1}}`,
	`{"type":"turn/end","seq":10,"time":11,"data":{"turn":1,"reason":{"kind":"completed"}}}`,
}

// Each rule about databases: what breaks it, next to the sound database that the
// first case is.
func TestDatabaseRules(t *testing.T) {
	cwd := "/srv"
	for _, tt := range []struct {
		name    string
		sql     string
		file    func(path string) error
		want    []string // of these rules
		verdict Verdict
	}{
		{name: "sound", verdict: OK},
		{name: "beside", file: func(p string) error { return os.WriteFile(p+"-wal", make([]byte, 5), 0o600) }, want: []string{"DB-READ note -1"}, verdict: OK},
		{name: "cut", file: func(p string) error { return os.Truncate(p, 4096) }, want: []string{"DB-OPEN error -1"}, verdict: Corrupt},
		{name: "wal", file: func(p string) error { return os.WriteFile(p+"-wal", make([]byte, 5000), 0o600) }, want: []string{"DB-WAL warning -1"}, verdict: Torn},
		{name: "page", file: func(p string) error { return scribble(p, "events") }, want: []string{"DB-PAGE error 0"}, verdict: Corrupt},
		{name: "schema", sql: `PRAGMA user_version=16`, want: []string{"DB-SCHEMA error -1"}, verdict: Unsupported},
		{name: "store", sql: `DELETE FROM persistence_state`, want: []string{"DB-STORE error -1"}, verdict: Corrupt},
		{name: "session", sql: `UPDATE sessions SET created_at=-1`, want: []string{"DB-SESSION error -1"}, verdict: Corrupt},
		{name: "column", sql: `UPDATE events SET type='' WHERE seq=9`, want: []string{"DB-COLUMN error 9"}, verdict: Corrupt},
		{name: "data", sql: `UPDATE events SET data='{' WHERE seq=9`, want: []string{"DB-DATA error 9"}, verdict: Corrupt},
		{name: "sources", sql: `UPDATE events SET source_event_seqs=x'80' WHERE seq=8`, want: []string{"DB-SOURCES error 8"}, verdict: Corrupt},
		{name: "op", sql: `UPDATE events SET surface_op='append' WHERE seq=2`, want: []string{"DB-OP error 2"}, verdict: Corrupt},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.sqlite")
			w, err := logfmt.CreateDatabase(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Begin(&logfmt.Header{ID: "s", CreatedAt: 1, Cwd: &cwd}); err != nil {
				t.Fatal(err)
			}
			for _, e := range soundLog {
				if err := w.AddJSON([]byte(e)); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			if tt.sql != "" {
				c, err := sqlite3.OpenFlags(path, sqlite3.OPEN_READWRITE)
				if err != nil {
					t.Fatal(err)
				}
				if err := c.Exec(tt.sql); err != nil {
					t.Fatal(err)
				}
				c.Close()
			}
			if tt.file != nil {
				if err := tt.file(path); err != nil {
					t.Fatal(err)
				}
			}
			log, err := logfmt.OpenFile(path, logfmt.Options{})
			if err != nil {
				t.Fatal(err)
			}
			res, err := Check(context.Background(), log, Options{})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range res.Findings {
				if strings.HasPrefix(f.Rule, "DB-") {
					got = append(got, fmt.Sprintf("%s %s %d", f.Rule, f.Severity, f.Seq))
				}
				if Lookup(f.Rule) == nil {
					t.Errorf("%s is no rule", f.Rule)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || res.Verdict != tt.verdict {
				t.Errorf("%s: %s\n%s", res.Verdict, diff, verdictLines(res))
			}
		})
	}
}

// scribble overwrites the first page of a table.
func scribble(path, table string) error {
	c, err := sqlite3.OpenFlags(path, sqlite3.OPEN_READONLY)
	if err != nil {
		return err
	}
	defer c.Close()
	st, _, err := c.Prepare(`SELECT rootpage FROM sqlite_schema WHERE name='` + table + `'`)
	if err != nil {
		return err
	}
	defer st.Close()
	if !st.Step() {
		return st.Err()
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(strings.Repeat("x", 4096)), int64(st.ColumnInt(0)-1)*4096)
	f.Close()
	return err
}
