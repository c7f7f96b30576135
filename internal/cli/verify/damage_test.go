package verify_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/internal/cli/replay"
	"github.com/dsh-audit/dsh-audit/internal/cli/verify"
	"github.com/dsh-audit/dsh-audit/internal/corpus"
)

type extent struct {
	Events, Turns         int64
	First, Last, LastTurn *int64
}

type damage struct {
	Kind, Rule, Message, Next string
	At                        struct {
		Line                          int64
		Offset, FrameOffset, Row, Seq *int64
		Frame                         *int
	}
	Before, Behind extent
	Harness        struct {
		Build, Action, Reason string
		Byte, Row             *int64
		Recovered             int64
		Adds                  []struct {
			Type string
			Seq  int64
		}
	}
}

type result struct {
	Container, Verdict string
	Events             int64
	Damage             *damage
}

func judge(t testing.TB, path string) result {
	t.Helper()
	var out, errs bytes.Buffer
	cli.Execute(context.Background(), verify.Program(), []string{"dsh-verify", "--format", "json", path}, strings.NewReader(""), &out, &errs)
	var doc struct{ Results []result }
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil || len(doc.Results) != 1 {
		t.Fatalf("%s: %v\n%s%s", path, err, out.Bytes(), errs.Bytes())
	}
	return doc.Results[0]
}

// proceed runs the command that a report names, and returns the file it wrote.
func proceed(t *testing.T, next string) string {
	t.Helper()
	words := strings.Fields(next) // nothing here needs quotes
	t.Chdir(t.TempDir())
	var out, errs bytes.Buffer
	if code := cli.Execute(context.Background(), replay.Program(), words, strings.NewReader(""), &out, &errs); code > 1 {
		t.Fatalf("%s: code %d\n%s", next, code, errs.Bytes())
	}
	files, err := filepath.Glob("*")
	if err != nil || len(files) > 1 {
		t.Fatalf("%s: files %v, %v", next, files, err)
	}
	if len(files) == 0 {
		return ""
	}
	return files[0]
}

// check holds a report to what must be true of every one, and follows its advice.
func check(t *testing.T, path string, r result) {
	t.Helper()
	if (r.Verdict == "torn" || r.Verdict == "corrupt") != (r.Damage != nil) {
		if r.Verdict == "violations" && r.Damage != nil && r.Damage.Kind == "torn" {
			return // both: the verdict is the worse one
		}
		t.Errorf("%s: verdict %s, damage %+v", path, r.Verdict, r.Damage)
	}
	d := r.Damage
	if d == nil {
		return
	}
	if d.Kind != r.Verdict || d.Rule == "" || d.Message == "" || d.Next == "" {
		t.Errorf("%s: %+v", path, d)
	}
	if d.Before.Events+d.Behind.Events != r.Events {
		t.Errorf("%s: %d events before and %d behind, of %d", path, d.Before.Events, d.Behind.Events, r.Events)
	}
	switch {
	case d.Kind == "torn":
		if (d.Harness.Byte == nil) == (d.Harness.Row == nil) {
			t.Errorf("%s: a torn log is cut somewhere: %+v", path, d.Harness)
		}
		out := proceed(t, d.Next)
		if out == "" {
			t.Fatalf("%s: %s wrote no file", path, d.Next)
		}
		if again := judge(t, out); again.Verdict != "ok" && again.Verdict != "warn" || again.Container != r.Container {
			t.Errorf("%s: %s leads to a log that is %s, %s", path, d.Next, again.Verdict, again.Container)
		}
	case d.Before.Events+d.Behind.Events > 0:
		if d.Harness.Action != "refuse" || proceed(t, d.Next) != "" {
			t.Errorf("%s: %+v", path, d)
		}
	}
}

// The logs that ship: each damaged one has a report, and the command that it
// names leads on.
func TestDamage(t *testing.T) {
	logs, err := filepath.Glob(filepath.Join(corpus.Root(t), "goldens", "*", "*", "session*.*"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no logs: %v", err)
	}
	n := map[string]int{}
	for _, log := range logs {
		r := judge(t, log)
		check(t, log, r)
		if r.Damage != nil {
			n[r.Damage.Kind+" "+r.Damage.Harness.Action]++
		}
	}
	t.Logf("%d logs: %v", len(logs), n)
	if n["torn cut"] == 0 || n["corrupt refuse"] == 0 || n["corrupt cut"] != 0 {
		t.Errorf("%v", n)
	}
}

// Every crash of the corpus: the report says of the harness what it did.
func TestCorpusDamage(t *testing.T) {
	dir, ok := corpus.Dir(t)
	if !ok {
		t.Skip("the full corpus is not here")
	}
	verdicts, err := filepath.Glob(filepath.Join(dir, "head", "*", "verdict.json"))
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	for _, file := range verdicts {
		folder := filepath.Dir(file)
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var v struct {
			Kind            string
			PreservedEvents *int64
			Closers         int
			LoadError       *string
			Load            json.RawMessage
		}
		if err := json.Unmarshal(b, &v); err != nil {
			t.Fatal(err)
		}
		logs, _ := filepath.Glob(filepath.Join(folder, "damaged.*"))
		if more, _ := filepath.Glob(filepath.Join(folder, "session.*")); len(logs) == 0 {
			logs = more
		}
		if len(logs) != 1 {
			t.Fatalf("%s: %v", folder, logs)
		}
		r := judge(t, logs[0])
		check(t, logs[0], r)
		d := r.Damage
		if d == nil {
			continue
		}
		n[d.Kind+" "+d.Harness.Action]++
		refused := bytes.Contains(v.Load, []byte("false")) || bytes.Contains(v.Load, []byte("reject")) || v.LoadError != nil
		if refused != (d.Harness.Action == "refuse") {
			t.Errorf("%s: refused by the harness: %v, here: %+v", folder, refused, d.Harness)
		}
		if v.PreservedEvents != nil && (d.Before.Events != *v.PreservedEvents || len(d.Harness.Adds) != v.Closers) {
			t.Errorf("%s: %d events before, %d added; want %d, %d", folder, d.Before.Events, len(d.Harness.Adds), *v.PreservedEvents, v.Closers)
		}
	}
	t.Logf("%v", n)
	if n["torn cut"] == 0 || n["corrupt refuse"] == 0 {
		t.Errorf("%v", n)
	}
}
