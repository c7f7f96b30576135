package plural

import "testing"

func TestCount(t *testing.T) {
	for _, c := range []struct {
		n    int64
		noun string
		want string
	}{
		{0, "request", "0 requests"}, {1, "request", "1 request"}, {2, "request", "2 requests"}, {-1, "byte", "-1 bytes"},
		{1, "more entry", "1 more entry"}, {2, "more entry", "2 more entries"}, {2, "process", "2 processes"}, {2, "day", "2 days"},
		{1 << 40, "byte", "1099511627776 bytes"},
	} {
		if got := Count(c.n, c.noun); got != c.want {
			t.Errorf("Count(%d, %s) = %s, want %s", c.n, c.noun, got, c.want)
		}
	}
}
