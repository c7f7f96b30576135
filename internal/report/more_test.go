package report

import "testing"

// What is said once for many says of how many what.
func TestFindingMore(t *testing.T) {
	for _, c := range []struct {
		f    Finding
		want string
	}{
		{Finding{Rule: "STEP-SCOPE", Line: 2, Message: "m"}, "m"},
		{Finding{Rule: "STEP-SCOPE", Line: 2, Message: "m", More: 1}, "m (and in 1 more event of the same row)"},
		{Finding{Rule: "LINE-SPACE", Line: 1, Message: "m", More: 20}, "m (and in 20 more lines)"},
		{Finding{Rule: "LINE-UTF8", Message: "m", More: 1}, "m (and in 1 more row)"},
	} {
		if got := c.f.String(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.f, got, c.want)
		}
	}
}

// A session is named where a database may hold several, and where there is one.
func TestName(t *testing.T) {
	for _, c := range []struct {
		r    Result
		want string
	}{
		{Result{Path: "a.jsonl", Container: "jsonl", Session: "s"}, "a.jsonl"},
		{Result{Path: "a.sqlite", Container: "sqlite", Session: "s"}, "a.sqlite (session s)"},
		{Result{Path: "a.sqlite", Container: "sqlite"}, "a.sqlite"},
		{Result{Path: "a.sqlite", Container: "sqlite", Session: "s", Whole: true}, "a.sqlite"},
	} {
		if got := c.r.name(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.r, got, c.want)
		}
	}
}
