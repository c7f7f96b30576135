package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
)

// What parts give when they are joined is what the whole run gives, in every format and
// with the same exit code, whatever is judged and however.
func TestMergeGivesTheWhole(t *testing.T) {
	t.Chdir(corpus.Root(t))
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.Mkdir(at("empty"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at("settings"), []byte("strict: true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// Files, directories, a database, archives, what lies nowhere or is named twice.
	logs := "internal/cli/testdata/logs"
	paths := []string{logs, at("empty"), at("gone"), logs + "/hostile.zip", logs + "/export.zip", logs + "/corrupt.jsonl", "./" + logs + "/torn.jsonl",
		"goldens/drift", "goldens/damaged/sqlite-gap-tail", "goldens/damaged/seq-swap", "goldens/damaged/tool-result-twice/session.jsonl"}
	verifyHere(t, append([]string{"--write-baseline", at("known")}, paths...)...)
	// every runs once and returns the reports and how it ended.
	every := func(args ...string) map[string]string {
		var words []string
		if args[0] == "merge" {
			words, args = args[:1:1], args[1:]
		}
		for _, f := range verifyFormats {
			words = append(words, "--output", f+"="+at("report."+f))
		}
		code, _, _ := verifyHere(t, append(words, args...)...)
		out := map[string]string{"code": fmt.Sprint(code)}
		for _, f := range verifyFormats {
			b, err := os.ReadFile(at("report." + f))
			if err != nil {
				t.Fatalf("%v: code %d, %v", args, code, err)
			}
			out[f] = string(b)
		}
		return out
	}
	codes := map[string]int{}
	for _, opts := range [][]string{
		{}, {"--notes"}, {"--strict"}, {"--fail-on", "warning"}, {"--fail-on", "never"},
		{"--baseline", at("known")}, {"--limit", "1"}, {"--only", "SURF-*,LOG-SEQ"}, {"--disable", "LOG-TIME,LINE-*,ZIP-*"},
		{"--paranoid"}, {"--as-loaded"}, {"--migrate-to", "v3"}, {"--config", at("settings")}, {"--fail-on-drift"}, {"--jobs", "1"},
	} {
		for _, paths := range [][]string{paths, paths[7:], paths[8:9]} {
			whole := every(append(slices.Clone(opts), paths...)...)
			codes[whole["code"]]++
			join := []string{"merge"}
			switch {
			case len(opts) == 0:
			case opts[0] == "--notes" || opts[0] == "--strict" || opts[0] == "--fail-on":
				join = append(join, opts...) // merge has these of its own
			case opts[0] == "--config":
				join = append(join, "--strict")
			}
			for i := range 3 {
				part := at(fmt.Sprintf("part%d", i))
				args := append(slices.Clone(opts), "--format", "text", "--output", "json="+part, "--shard", fmt.Sprintf("%d/3", i+1))
				verifyHere(t, append(args, paths...)...)
				join = append(join, part)
			}
			if d := cmp.Diff(whole, every(join...)); d != "" {
				t.Errorf("%v of %d paths (-whole +joined):\n%s", opts, len(paths), d)
			}
		}
	}
	t.Logf("codes %v", codes)
	if codes["0"] == 0 || codes["1"] == 0 || codes["2"] == 0 {
		t.Errorf("codes %v, want some of 0, 1 and 2", codes)
	}
}
