package fold

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-audit/dsh-audit/internal/corpus"
)

// TestGoldens rebuilds the recorded sessions that ship with the repository. The
// counts are exact, so that no case can drop out unnoticed.
func TestGoldens(t *testing.T) {
	count := map[string]int{}
	for _, r := range runs(t, filepath.Join(corpus.Root(t), "goldens", "sound")) {
		t.Run(r.name, func(t *testing.T) { r.check(t, count) })
	}
	want := map[string]int{
		"logs": 50, "mode surface": 48, "mode linear": 2,
		"exact": 185, "messages": 17, "inherited": 9,
		// Requests of E6 that set scalars: E8 would have put them elsewhere.
		"ambiguous": 11, ReasonLayout: 11,
		"candidates sent": 3, "candidates not sent": 2,
		"key order": 2, // head-config-keyorder, turns 2 and 4
	}
	if diff := cmp.Diff(want, count); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}
