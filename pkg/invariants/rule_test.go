package invariants

import (
	"regexp"
	"strings"
	"testing"
)

func TestCatalogue(t *testing.T) {
	id := regexp.MustCompile(`^[A-Z]+(-[A-Z0-9]+)*$`)
	all := All()
	if len(all) != len(registry) || len(all) == 0 {
		t.Fatalf("All returned %d rules, %d are registered", len(all), len(registry))
	}
	last := ""
	for _, r := range all {
		if r.ID <= last {
			t.Errorf("%s comes after %s, want order by id", r.ID, last)
		}
		last = r.ID
		if !id.MatchString(r.ID) {
			t.Errorf("%s: not a rule id", r.ID)
		}
		if Lookup(r.ID) != r {
			t.Errorf("Lookup(%q) returns another rule", r.ID)
		}
		for _, text := range []struct{ name, s string }{
			{"Title", r.Title}, {"Text", r.Text}, {"How", r.How}, {"Advice", r.Advice}, {"Spec", r.Spec},
		} {
			if strings.TrimSpace(text.s) == "" {
				t.Errorf("%s: no %s", r.ID, text.name)
			}
		}
		if strings.HasSuffix(r.Title, ".") {
			t.Errorf("%s: title ends in a period", r.ID)
		}
		if r.Until != 0 && r.Until < r.Since {
			t.Errorf("%s: ends before it begins", r.ID)
		}
	}
	if Lookup("NO-SUCH") != nil {
		t.Error(`Lookup("NO-SUCH") found a rule`)
	}
}

func TestWhen(t *testing.T) {
	for _, c := range []struct{ id, want string }{
		{"LOG-SEQ", "all eras"},
		{"SURF-REWRITE", "from 07-20 17:30 (era E6), and in generations 1 to 4"},
		{"SURF-HEAD", "from generation 3"},
		{"CHUNK-ASM", "from 07-27 22:39 (era E8), and in generations 2 to 4"},
		{"STREAM-TAIL", "all eras, and in generation 1"},
		{"ROOT-SIDECAR", "all eras"},
		{"MSG-BLOCK", "from generation 4"},
		{"REQ-BOUNDARY", "from 08-05 22:13 (era E10), and in generation 1"},
	} {
		if got := Lookup(c.id).When(); got != c.want {
			t.Errorf("%s: When() = %q, want %q", c.id, got, c.want)
		}
	}
}
