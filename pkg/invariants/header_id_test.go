package invariants

import (
	"fmt"
	"strings"
	"testing"
)

// A session root has no place for a session without an id (PHYSICAL §1.3): no build
// can have written one, and none finds it.
func TestEmptyID(t *testing.T) {
	for _, c := range []struct{ header, want string }{
		{header, ""},
		{strings.Replace(header, `"id":"s"`, `"id":""`, 1), `LOG-HEADER error: header id is "", expected a string that is not empty`},
		{`{"type":"session","version":1,"id":"","createdAt":1,"cwd":"/w"}` + "\n", `LOG-HEADER error: header id is "", expected a string that is not empty`},
		{`{"type":"session","version":2,"id":"","createdAt":1,"cwd":"/w","isSeeded":false,"delegationDepth":0}` + "\n",
			`LOG-HEADER error: header id is "", expected a string that is not empty`},
	} {
		var got []string
		res := judge(t, []byte(c.header), Options{})
		for _, f := range res.Findings {
			if f.Rule == "LOG-HEADER" {
				got = append(got, fmt.Sprintf("%s %s: %s", f.Rule, f.Severity, f.Message))
			}
		}
		if got := strings.Join(got, "\n"); got != c.want || (c.want != "") != (res.Verdict == Violations) {
			t.Errorf("%s: %s, got %s, want %s", c.header, res.Verdict, got, c.want)
		}
		if refused := res.Load != nil && res.Load.Refusal != nil; c.want != "" && !refused && !strings.Contains(c.header, `"version":2`) {
			t.Errorf("%s: not refused on loading", c.header)
		}
	}
}
