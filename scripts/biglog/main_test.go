package main

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"

	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/invariants"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// What is written is sound in every form, and is the same log in each.
func TestSound(t *testing.T) {
	const events, steps, replaces = 2600, 12, 3
	dir := t.TempDir()
	var sums [][32]byte
	for _, form := range []string{"plain", "packed", "zstd", "sqlite"} {
		p := &plan{replaces: replaces, context: 4, turn: 4, chunks: 100, seed: 7}
		path := filepath.Join(dir, form)
		if err := run(p, form, path); err != nil {
			t.Fatalf("%s: %v", form, err)
		}
		if p.made != steps || p.replaced != replaces || p.seq != events {
			t.Errorf("%s: %d steps, %d replaces, %d events", form, p.made, p.replaced, p.seq)
		}
		log, err := logfmt.OpenFile(path, logfmt.Options{})
		if err != nil {
			t.Fatalf("%s: %v", form, err)
		}
		var got [][32]byte
		res, err := invariants.Check(context.Background(), log, invariants.Options{
			Request: func(r *fold.Request) { got = append(got, r.Sum()) },
		})
		log.Close()
		if err != nil || res.Verdict != invariants.OK || len(res.Findings) > 0 || res.Events != events || res.Requests.Exact != steps {
			t.Errorf("%s: %v %v, %d events, %d requests, %d findings", form, err, res.Verdict, res.Events, res.Requests.Exact, len(res.Findings))
		}
		if sums == nil {
			sums = got
		}
		for i := range got {
			if len(got) != len(sums) || !bytes.Equal(got[i][:], sums[i][:]) {
				t.Fatalf("%s: request %d of %d differs from that of the plain form", form, i, len(got))
			}
		}
	}
}

func TestBounds(t *testing.T) {
	for _, c := range []struct {
		p    plan
		form string
		want string
	}{
		{plan{turn: 1, chunks: 1}, "plain", "one of -bytes, -steps and -replaces is needed"},
		{plan{replaces: 1, turn: 1, chunks: 1}, "plain", "-replaces needs a -context"},
		{plan{bytes: 1, chunks: 1}, "plain", "-turn and -chunks must be 1 at least"},
		{plan{bytes: 1, turn: 1, chunks: 1}, "sqlite", "-form sqlite needs -o"},
		{plan{bytes: 1, turn: 1, chunks: 1}, "tar", `-form "tar" is none of plain, packed, zstd, sqlite`},
	} {
		if err := run(&c.p, c.form, ""); err == nil || err.Error() != c.want {
			t.Errorf("%+v: got %v, want %s", c.p, err, c.want)
		}
	}
}
