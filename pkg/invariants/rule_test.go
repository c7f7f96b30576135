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

// Every check of the specification has its rule, under the id and with the severity
// that it has there: an error is what the harness refuses or its own companions fail
// on, a warning what all of its logs keep to.
func TestCatalogueIsComplete(t *testing.T) {
	want := map[string]Severity{}
	for severity, ids := range map[Severity]string{
		Error: `LOG-HEADER LOG-SEQ LOG-ENV LOG-TYPE TURN-OPEN TURN-CLOSE STEP-OPEN STEP-CLOSE STEP-SCOPE CALL-PAIR RESULT-REWRITE-TURN TURN-ENCLOSE
			SURF-MARKER SURF-ELIGIBLE SURF-OP SURF-RANGE SURF-SOURCES SURF-SHADOW SURF-EMPTY SURF-REWRITE HDR-SHAPE HDR-DELTA MSG-SHAPE EVT-SHAPE
			CMP-PAIR CMP-OWNER CMP-RANGE CMP-ID CMP-SEED HOOK-PAIR DISPATCH APPR-PAIR RETRY RETRY-START WF SCHED TEAM GOAL GOAL-ROUND TODO CMD TITLE
			PLAN SANDBOX TIME INBOX FORK-PREFIX FORK-CUT FORK-MARK
			LINE-JSON LINE-BLANK LINE-VALUE LINE-ROW DB-DATA DB-SCHEMA FRAME-DATA FRAME-MAGIC FRAME-HEADER REQ-EXTEND REQ-PARANOID REQ-BYTES`,
		Warning: `LOG-TIME CALL-RESULT-COMPLETE CALL-MATCH RESULT-CITE CHUNK-CITE CHUNK-ASM CHUNK-USAGE ASST-ONE ASST-SOURCE HDR-FIRST HDR-INITIAL
			HDR-NOOP HDR-CANON HDR-PLACE HDR-CHURN CTX-CHANGE REQ-BOUNDARY USER-PLACE CMP-CITE PRESET SUBAGENT-DESC CACHE-ZERO CACHE-COLLAPSE
			FORK-LEN FORK-SEED FORK-DEPTH CALL-ID LOG-WRITERS ASST-REPLAY LINE-TORN FRAME-TORN LINE-DUPKEY LINE-NUMBER LINE-UTF8 LINE-SPACE LINE-KEYS LINE-ESCAPE
			STREAM-INDEX STREAM-START STREAM-DELTA STREAM-END STREAM-USAGE STREAM-TAIL STREAM-OPEN STREAM-FINISH`, // sound logs break these
		Note: `TAIL-OPEN HDR-RESUME-DRIFT CALL-OPEN ASST-EMPTY LINE-SURROGATE LOAD-REFUSED`,
	} {
		for _, id := range strings.Fields(ids) {
			want[id] = severity
		}
	}
	for id, severity := range want {
		r := Lookup(id)
		switch {
		case r == nil:
			t.Errorf("no rule %s", id)
		case r.Severity != severity:
			t.Errorf("%s is of severity %s, want %s", id, r.Severity, severity)
		}
	}
}
