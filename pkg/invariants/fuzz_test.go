package invariants

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Whatever the bytes: no panic, a verdict that fits the findings, findings in
// order and printable, and the same result however the bytes arrive.
func FuzzCheck(f *testing.F) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range archives {
		a, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, x := range a.Files {
			f.Add(x.Data)
		}
	}
	logs, err := filepath.Glob(filepath.Join(corpus.Root(f), "goldens", "*", "*", "session.jsonl"))
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range logs {
		if data, err := os.ReadFile(file); err == nil && len(data) < 16<<10 {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		res := judge(t, data, Options{MaxPerRule: 10})
		log, err := logfmt.NewReader(iotest.OneByteReader(bytes.NewReader(data)), "log.jsonl", logfmt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		slow, err := Check(context.Background(), log, Options{MaxPerRule: 10})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(res, slow, cmp.AllowUnexported(Finding{}), sameError); d != "" {
			t.Fatalf("byte by byte (-at once +slow):\n%s", d)
		}
		checkResult(t, res)

		// A recording made from the log itself matches it.
		var rec bytes.Buffer
		n := int64(0)
		requests := func() *logfmt.Log {
			log, err := logfmt.NewReader(bytes.NewReader(data), "log.jsonl", logfmt.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return log
		}
		for r, err := range fold.Requests(requests(), fold.Options{}) {
			if err == nil && !r.Inherited {
				rec.WriteString(`{"request":`)
				rec.Write(r.AppendBody(nil))
				rec.WriteString("}\n")
				n++
			}
		}
		c, err := CompareRequests(fold.Requests(requests(), fold.Options{}), &rec)
		if err != nil {
			t.Fatal(err)
		}
		if c.Matched != n || c.Recorded != n || c.Errors() != 0 {
			t.Fatalf("of %d requests recorded from the log itself: %+v", n, c)
		}
	})
}

func checkResult(t *testing.T, res *Result) {
	t.Helper()
	errors, warnings := int64(0), int64(0)
	for i, f := range res.Findings {
		if byID[f.Rule] == nil {
			t.Fatalf("finding of no rule: %+v", f)
		}
		if i > 0 && compareFindings(res.Findings[i-1], f) > 0 {
			t.Fatalf("findings out of order at %d", i)
		}
		for _, s := range []string{f.Message, f.Hint, f.Path} {
			if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
				t.Fatalf("%s: not printable: %q", f.Rule, s)
			}
		}
		switch f.Severity {
		case Error:
			errors++
		case Warning:
			warnings++
		}
	}
	if len(res.Omitted) == 0 && (errors != res.Errors || warnings != res.Warnings) {
		t.Fatalf("%d errors and %d warnings counted, %d and %d found", res.Errors, res.Warnings, errors, warnings)
	}
	switch res.Verdict {
	case OK:
		if res.Errors+res.Warnings > 0 || res.Class != logfmt.Intact {
			t.Fatalf("ok with %d errors, %d warnings, %s", res.Errors, res.Warnings, res.Class)
		}
	case Warn, Open:
		if res.Errors > 0 || res.Class != logfmt.Intact {
			t.Fatalf("%s with %d errors, %s", res.Verdict, res.Errors, res.Class)
		}
	case Torn:
		if res.Errors > 0 || res.Class != logfmt.Torn {
			t.Fatalf("torn with %d errors, %s", res.Errors, res.Class)
		}
	case Corrupt:
		if res.Class != logfmt.Corrupt {
			t.Fatalf("corrupt, but the reader says %s", res.Class)
		}
	case Violations, Unsupported:
		if res.Errors == 0 {
			t.Fatalf("%s without an error", res.Verdict)
		}
	case Unreadable:
		if res.Class != logfmt.Unreadable {
			t.Fatalf("unreadable, but the reader says %s", res.Class)
		}
	default:
		t.Fatalf("verdict %q", res.Verdict)
	}
}

// sameError compares causes by their words.
var sameError = cmp.Comparer(func(a, b error) bool { return fmt.Sprint(a) == fmt.Sprint(b) })

// Whatever the bytes, the checks of this package against itself are content: the
// second fold gives what the first one gave, requests extend one another where
// they must, and a log held against itself as its own parent agrees.
func FuzzWitness(f *testing.F) {
	for _, pattern := range []string{"CHUNK-*", "CALL-*", "STREAM-*", "HDR-*", "FORK-*", "SURF-R*", "CMP-PAIR*", "LOG-WRITERS*", "CACHE-*"} {
		archives, err := filepath.Glob("testdata/" + pattern + ".txtar")
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range archives {
			a, err := txtar.ParseFile(file)
			if err != nil {
				f.Fatal(err)
			}
			for _, x := range a.Files {
				f.Add(x.Data)
			}
		}
	}
	path := filepath.Join(f.TempDir(), "log.jsonl")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		open := func() *logfmt.Log {
			log, err := logfmt.OpenFile(path, logfmt.Options{})
			if err != nil {
				return nil
			}
			return log
		}
		log := open()
		if log == nil {
			return
		}
		defer log.Close()
		res, err := Check(context.Background(), log, Options{MaxPerRule: 10, Paranoid: ParanoidAll, Parent: func(string) *logfmt.Log {
			p := open()
			if p.Header != nil && log.Header.ParentSession != nil {
				p.Header.ID = *log.Header.ParentSession
			}
			return p
		}})
		if err != nil {
			t.Fatal(err)
		}
		checkResult(t, res)
		for _, f := range res.Findings {
			switch f.Rule {
			case "REQ-PARANOID", "REQ-EXTEND", "FORK-PREFIX":
				t.Fatalf("%s: %s", f.Rule, f.Message)
			}
		}
		if res.Paranoid.Skipped == "" && res.Paranoid.Checked != res.Paranoid.Of {
			t.Fatalf("%+v", res.Paranoid)
		}
	})
}
