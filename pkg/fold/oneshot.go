package fold

import "github.com/dsh-audit/dsh-audit/pkg/logfmt"

// OneShot is a model call outside the loop (SEMANTICS §7).
type OneShot struct{}

func (f *Fold) oneShot(e *logfmt.Event) {}
