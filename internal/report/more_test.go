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
