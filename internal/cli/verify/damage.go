package verify

import (
	"path/filepath"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/internal/report"
	"github.com/dsh-audit/dsh-audit/pkg/invariants"
	"github.com/dsh-audit/dsh-audit/pkg/load"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// damage is the report on a log that is torn or corrupt, nil for any other.
func damage(res *invariants.Result) *report.Damage {
	d, o := res.Damage, res.Load
	if d == nil || o == nil || res.Class != logfmt.Torn && res.Class != logfmt.Corrupt {
		return nil
	}
	r := &report.Damage{
		Kind: string(res.Class), Rule: d.Rule, Message: report.Text(d.Message),
		Before: extent(o.Before), Behind: extent(o.Behind),
		At:   report.DamageAt{Line: d.Pos.Line, Row: known(d.Pos.Row), Seq: known(d.Seq)},
		Next: report.Text(next(res)),
	}
	if d.Pos.Line > 0 {
		at := d.Pos.Offset + d.At
		r.At.Offset = &at
	}
	if d.Pos.Frame >= 0 {
		frame := d.Pos.Frame
		r.At.Frame, r.At.FrameOffset = &frame, known(d.Pos.FrameAt)
	}
	h := &r.Harness
	h.Build, h.Adds = load.Date, []report.Added{}
	if o.Cut.Torn {
		h.Byte, h.Row, h.Recovered = known(o.Cut.Byte), known(o.Cut.Row), o.Cut.Recovered
	}
	later := res.Generation > 0 && o.Refusal != nil && o.Refusal.Stage == load.Version && !june(res)
	switch {
	case later && res.Class == logfmt.Corrupt:
		h.Build, h.Action, h.Reason = "", "refuse", r.Message
	case later:
		h.Build, h.Action = "", "cut"
	case o.Unjudged != "":
		h.Action, h.Reason = "unknown", report.Text(o.Unjudged)
	case o.Refusal != nil:
		h.Action, h.Reason = "refuse", report.Text(o.Refusal.Error())
	default:
		h.Action = "cut"
		for _, e := range o.Closers {
			h.Adds = append(h.Adds, report.Added{Type: e.Type, Seq: e.Seq})
		}
	}
	return r
}

func known(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}

func extent(x load.Extent) report.Extent {
	return report.Extent{Events: x.Events, First: known(x.First), Last: known(x.Last), Turns: x.Turns, LastTurn: known(x.LastTurn)}
}

// june reports whether a log is one of version 1 from before version 0.
func june(res *invariants.Result) bool { return len(res.Eras) > 0 && res.Eras[0].Max == 0 }

// next is the command that goes on from here: to mend a torn log, to see what is
// left of a corrupt one.
func next(res *invariants.Result) string {
	path := res.Path
	if path == "-" {
		return "" // it was read and is gone
	}
	path = cli.Path(path)
	var words []string
	session := func() {
		if res.Container == logfmt.SQLite && res.Session != "" {
			words = append(words, "--session", res.Session)
		}
	}
	if res.Class == logfmt.Corrupt && res.Load.Before.Events+res.Load.Behind.Events == 0 {
		return cli.CommandLine([]string{"dsh-verify", "explain", res.Damage.Rule})
	}
	if res.Class == logfmt.Corrupt {
		words = []string{"dsh-replay", "events", "--after-damage"}
		session()
		return cli.CommandLine(append(words, path))
	}
	form, suffix := "plain", ".jsonl"
	switch res.Container {
	case logfmt.Zstd:
		form, suffix = "zstd", ".jsonl.zstd"
	case logfmt.SQLite:
		form, suffix = "sqlite", ".sqlite"
	}
	base := filepath.Base(path)
	for _, s := range []string{".zstd", ".jsonl", ".sqlite", ".db"} {
		base = strings.TrimSuffix(base, s)
	}
	out := base + ".repaired" + suffix
	words = []string{"dsh-replay", "export", "--to", form, "-o", cli.Path(out), "--repair"}
	session()
	return cli.CommandLine(append(words, path))
}
