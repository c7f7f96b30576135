package cli

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/dsh-audit/dsh-audit/internal/ui"
)

// operands returns the files of a call: tail is what the flag package left
// over, head everything before it. The library takes an option that stands
// after a file for another file, silently; here it is an error.
func operands(head, tail []string, flags []cli.Flag) ([]string, error) {
	head, tail = unmarkDash(head), unmarkDash(tail)
	if head[len(head)-1] == "--" {
		return tail, nil
	}
	var ops, moved []string
	for i := 0; i < len(tail); i++ {
		a := tail[i]
		if a == "--" {
			ops = append(ops, tail[i:]...) // kept for the corrected command
			break
		}
		if len(a) < 2 || a[0] != '-' || a[1] == '@' {
			ops = append(ops, a)
			continue
		}
		name, _, hasValue := strings.Cut(strings.TrimLeft(a, "-"), "=")
		f := findFlag(flags, name)
		if f == nil {
			return nil, Usage(fmt.Sprintf("unknown option %s", Quote(a)),
				"a file whose name begins with '-' is written "+Quote("./"+a))
		}
		moved = append(moved, a)
		if !bare(f) && !hasValue && i+1 < len(tail) {
			i++
			moved = append(moved, tail[i])
		}
	}
	if len(moved) > 0 {
		words := append(append(append([]string{}, head...), moved...), ops...)
		return nil, Usage(fmt.Sprintf("option %s stands after a file; options come first", Quote(moved[0])),
			"run: "+CommandLine(words))
	}
	for i, a := range ops {
		if a == "--" {
			return append(ops[:i:i], ops[i+1:]...), nil
		}
	}
	return ops, nil
}

// An operand like -@2.1, standard input with a reference, is no option. The flag
// package is kept from reading it as one by a NUL, which no argument can hold.
func markDash(args []string) []string {
	out := append([]string(nil), args...)
	for i, a := range out {
		if strings.HasPrefix(a, "-@") {
			out[i] = "\x00" + a
		}
	}
	return out
}

// unmarkDash is the inverse of markDash.
func unmarkDash(args []string) []string {
	out := append([]string(nil), args...)
	for i, a := range out {
		out[i] = strings.TrimPrefix(a, "\x00")
	}
	return out
}

// flagError words the flag package's messages as ours.
func flagError(err error) string {
	msg := err.Error()
	if name, ok := strings.CutPrefix(msg, "flag provided but not defined: -"); ok {
		return "unknown option --" + name
	}
	if name, ok := strings.CutPrefix(msg, "flag needs an argument: -"); ok {
		return "option --" + name + " needs a value"
	}
	return msg
}

// CommandLine joins words so that a POSIX shell (bash, for odd bytes) splits
// them the same way again.
func CommandLine(words []string) string {
	q := make([]string, len(words))
	for i, w := range words {
		q[i] = Quote(w)
	}
	return strings.Join(q, " ")
}

// Path writes the path of a file as a word of a command that takes it for neither
// an option nor a command of its own.
func Path(p string) string {
	switch {
	case strings.HasPrefix(p, "-") && p != "-", p == "merge", p == "explain", p == "rules":
		return "./" + p
	}
	return p
}

// Quote writes one word for a shell. What acts on a terminal and bytes that are
// not UTF-8 take bash's $'…' form, so that the result is printable as it stands.
func Quote(w string) string {
	plain, printable := w != "", ui.Escape(w) == w
	for _, r := range w {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./@:=,+%", r)) {
			plain = false
		}
	}
	switch {
	case plain:
		return w
	case printable:
		return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	var b strings.Builder
	b.WriteString("$'")
	for i := 0; i < len(w); i++ {
		switch c := w[i]; {
		case c == '\'' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < 0x20 || c >= 0x7f:
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('\'')
	return b.String()
}
