package corpus

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A Migration is what the released converters made of one log of generation 0.
type Migration struct {
	Case   string // its name
	Source string // the log it was made from
	// OK holds, for each generation reached ("v1", "v2", "v3"), how many events
	// came out and where the inherited ones end.
	OK map[string]struct{ Events, Cut int64 }
	// Errors holds the stage that refused it, if one did, with its message.
	Errors map[string]string
}

// Log is the file of a generation that was reached.
func (m *Migration) Log(dir, version string) string {
	return filepath.Join(dir, "migrated", filepath.FromSlash(m.Case), "session."+version+".jsonl")
}

// Migrations reads what was recorded of the migrations in the corpus at dir.
func Migrations(tb testing.TB, dir string) (out []Migration) {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "migrated", "RESULTS.jsonl"))
	if err != nil {
		tb.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		var m Migration
		if err := json.Unmarshal(line, &m); err != nil {
			tb.Fatal(err)
		}
		m.Source = filepath.Join(dir, "head", filepath.FromSlash(sourceOf(m.Case)))
		if _, err := os.Stat(m.Source); err != nil {
			tb.Fatal(err)
		}
		out = append(out, m)
	}
	return out
}

// sourceOf is the log below head that a case was made from.
func sourceOf(name string) string {
	base, rest, _ := strings.Cut(name, "/")
	file := "session"
	for _, part := range strings.Split(rest, "/") {
		switch who, packed := strings.CutSuffix(part, ".packed"); {
		case part == "":
		case part == "packed":
			file += ".packed"
		case part == "before-resume", part == "crashed":
			base += "/" + part
		case part == "damaged", part == "repaired-file":
			file = part
		case packed:
			file += "." + who + ".packed"
		default:
			file += "." + who
		}
	}
	return base + "/" + file + ".jsonl"
}
