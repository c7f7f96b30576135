package replay

import (
	"fmt"
	"strings"

	"github.com/dsh-audit/dsh-audit/internal/cli"
	"github.com/dsh-audit/dsh-audit/internal/cli/source"
	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/internal/ui"
	"github.com/dsh-audit/dsh-audit/pkg/drift"
	"github.com/dsh-audit/dsh-audit/pkg/fold"
)

func runShow(c *cli.Call) error {
	if len(c.Operands) != 2 {
		return cli.Usage("show takes a log and a request",
			"usage: dsh-replay show [options] LOG TURN.STEP[.ATTEMPT]")
	}
	ref, err := source.ParseRef(c.Operands[1])
	if err != nil {
		return err
	}
	opts, err := source.FoldOptions(c)
	if err != nil {
		return err
	}
	log, err := source.One(c, c.Operands[0])
	if err != nil {
		return err
	}
	defer log.Close()
	r, status, err := source.Find(c, log, opts, &ref)
	if err != nil {
		return err
	}
	if c.Bool("raw") {
		if err := writeJSON(c.Out, r.AppendBody(nil)); err != nil {
			return err
		}
		return status
	}
	text, err := render(c.Palette, r)
	if err != nil {
		return err
	}
	if _, err := c.Out.WriteString(text); err != nil {
		return err
	}
	return status
}

// render shows a request to a reader. Lines of log text stand behind a bar, so
// that they cannot be taken for ours.
func render(pal ui.Palette, r *fold.Request) (string, error) {
	raw := r.AppendBody(nil)
	body, err := drift.Parse(raw)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	head := func(s string) { p("%s", pal.Head(s)) }
	text := func(indent, s string) {
		for _, line := range strings.Split(ui.EscapeLines(s), "\n") {
			p("%s| %s", indent, line)
		}
	}

	head(fmt.Sprintf("request %s, attempt %d", Name(r), r.Attempt))
	p("  grade     %s", r.Grade)
	for _, n := range notes(r) {
		if reason, ok := strings.CutPrefix(n, "ambiguous: "); ok && doubts[reason] != "" {
			n += ": " + doubts[reason]
		}
		p("  note      %s", ui.Escape(n))
	}
	for _, a := range r.Assumptions {
		p("  assumes   %s: %s", a, assumptions[a])
	}
	p("  body      %d bytes, sha256 %s", r.Len(), digest(r))
	p("  messages  %d, from events before seq %d (%s)", len(body.Messages), r.Boundary.Seq, r.Boundary.Rule)
	if r.HeaderSeq >= 0 {
		own := "logged earlier"
		if r.HeaderOwn {
			own = "logged for this attempt"
		}
		p("  header    seq %d, %s, %s", r.HeaderSeq, ui.Escape(r.HeaderReason), own)
	} else {
		p("  header    none was logged")
	}
	switch {
	case r.Response >= 0:
		p("  answer    seq %d", r.Response)
	case r.FirstChunk >= 0:
		p("  answer    none; chunks seq %d to %d, finish %s", r.FirstChunk, r.LastChunk, orNone(ui.Escape(r.Finish)))
	default:
		p("  answer    none")
	}

	if len(body.Config) > 0 || body.SessionID != nil {
		head("config")
		for _, m := range body.Config {
			p("  %s: %s", ui.Escape(m.Name), ui.SafeJSON(m.Value))
		}
		if body.SessionID != nil {
			p("  sessionId: %s", ui.SafeJSON(body.SessionID))
		}
	}
	if body.System != nil {
		head("system")
		if s, ok := jsjson.Str(body.System); ok {
			text("  ", s)
		} else {
			p("  %s", ui.SafeJSON(body.System))
		}
	}
	if body.HasTools {
		head(fmt.Sprintf("tools (%d)", len(body.Tools)))
		for _, t := range body.Tools {
			name, _ := jsjson.Str(jsjson.Get(t, "name"))
			p("  %s", ui.Escape(name))
			if d, ok := jsjson.Str(jsjson.Get(t, "description")); ok {
				text("    ", d)
			}
			if params := jsjson.Get(t, "parameters"); params != nil {
				p("    parameters: %s", ui.SafeJSON(params))
			}
		}
	}
	head(fmt.Sprintf("messages (%d)", len(body.Messages)))
	// The header's prefix comes first and has no events.
	var nodes []*fold.Node
	for n := range r.Messages() {
		nodes = append(nodes, n)
	}
	prefix := len(body.Messages) - len(nodes)
	for i, m := range body.Messages {
		role, _ := jsjson.Str(jsjson.Get(m, "role"))
		from := "from the header"
		if i >= prefix {
			n := nodes[i-prefix]
			from = fmt.Sprintf("seq %d, %s", n.Seq, ui.Escape(n.Type))
		}
		if id, ok := jsjson.Str(jsjson.Get(m, "id")); ok {
			from += ", id " + ui.Escape(id)
		}
		p("  [%d] %s (%s)", i, pal.Head(ui.Escape(role)), from)
		content := jsjson.Get(m, "content")
		if jsjson.KindOf(content) != jsjson.Array {
			p("    %s", ui.SafeJSON(m))
			continue
		}
		for block := range jsjson.Elements(content) {
			showBlock(p, text, "    ", block)
		}
	}
	return out.String(), nil
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// showBlock prints a content block. Results hold blocks of their own; one level
// is all the harness writes, deeper ones are shown as JSON.
func showBlock(p func(string, ...any), text func(indent, s string), indent string, b []byte) {
	str := func(key string) string {
		s, _ := jsjson.Str(jsjson.Get(b, key))
		return s
	}
	typ := str("type")
	switch {
	case typ == "text":
		text(indent, str("text"))
	case typ == "reasoning":
		p("%sreasoning", indent)
		text(indent, str("text"))
	case typ == "tool-call":
		p("%scall %s, id %s", indent, ui.Escape(str("name")), ui.Escape(str("id")))
		text(indent, str("arguments"))
	case typ == "tool-result" && len(indent) < 6:
		word := "result"
		if string(jsjson.Get(b, "isError")) == "true" {
			word = "failed result"
		}
		p("%s%s of call %s", indent, word, ui.Escape(str("toolCallId")))
		for inner := range jsjson.Elements(jsjson.Get(b, "content")) {
			showBlock(p, text, indent+"  ", inner)
		}
	default:
		p("%s%s", indent, ui.SafeJSON(b))
	}
}
