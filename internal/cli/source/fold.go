package source

import (
	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
	"github.com/dsh-audit/dsh-audit/pkg/logfmt"
)

// Framings and Layouts are the values of --framing and --config-layout, the
// default first.
var (
	Framings = []string{"auto", "tagged", "verbatim"}
	Layouts  = []string{"auto", "named", "spread"}
)

// Framing is the fold's option for one of Framings.
func Framing(v string) fold.Framing {
	return map[string]fold.Framing{"tagged": fold.FramingTagged, "verbatim": fold.FramingVerbatim}[v]
}

// Layout is the fold's option for one of Layouts.
func Layout(v string) fold.Layout {
	return map[string]fold.Layout{"named": fold.LayoutNamed, "spread": fold.LayoutSpread}[v]
}

// FoldOptions reads --framing, --config-layout and --parent. An option that the
// command lacks is as if not given.
func FoldOptions(c *cli.Call) (o fold.Options, err error) {
	if c.Text("framing") != "" || c.IsSet("framing") {
		v, err := c.Choice("framing", Framings...)
		if err != nil {
			return o, err
		}
		o.Framing = Framing(v)
	}
	if c.Text("config-layout") != "" || c.IsSet("config-layout") {
		v, err := c.Choice("config-layout", Layouts...)
		if err != nil {
			return o, err
		}
		o.Layout = Layout(v)
	}
	ancestors := map[string]*logfmt.Header{}
	for _, path := range c.List("parent") {
		log, err := logfmt.OpenFile(path, logfmt.Options{})
		if err != nil {
			return o, Trouble(path, err)
		}
		if h := log.Header; h != nil {
			ancestors[h.ID] = h
		}
		log.Close()
	}
	if len(ancestors) > 0 {
		o.Ancestor = func(id string) *logfmt.Header { return ancestors[id] }
	}
	return o, nil
}
