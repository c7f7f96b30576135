package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
	"github.com/dsh-audit/dsh-audit/internal/ui"
)

// Text is text from outside in a JSON document. It keeps what a Go string would
// lose: a lone surrogate stays one (text of logs is WTF-8); a byte that is no
// text at all, as in a file name, is shown as \xff. Characters that act on a
// terminal are written as \u escapes.
type Text string

func (t Text) MarshalJSON() ([]byte, error) {
	return ui.SafeJSON(jsjson.AppendQuote(nil, string(showBadBytes(string(t))))), nil
}

// showBadBytes replaces bytes that are neither UTF-8 nor a surrogate of WTF-8.
func showBadBytes(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r != utf8.RuneError || n > 1:
			b.WriteString(s[i : i+n])
		case i+2 < len(s) && s[i] == 0xed && s[i+1] >= 0xa0 && s[i+1] <= 0xbf && s[i+2]&0xc0 == 0x80:
			b.WriteString(s[i : i+3])
			n = 3
		default:
			b.WriteString(ui.Escape(s[i : i+1]))
		}
		i += n
	}
	return b.String()
}

// Raw is a JSON value that is copied as it stands. Nil is null.
type Raw []byte

func (r Raw) MarshalJSON() ([]byte, error) {
	if r == nil {
		return []byte("null"), nil
	}
	return r, nil
}

// Marshal writes v as one line of JSON without HTML escapes and without a line
// feed.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func writeString(w io.Writer, parts ...string) error {
	for _, p := range parts {
		if _, err := io.WriteString(w, p); err != nil {
			return err
		}
	}
	return nil
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (t *Text) UnmarshalJSON(b []byte) error {
	canon, _, err := jsjson.Stringify(b)
	if err != nil {
		return err
	}
	s, ok := jsjson.Str(canon)
	if !ok {
		return fmt.Errorf("expected a string, got %.20s", b)
	}
	*t = Text(s)
	return nil
}
