package report

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func table(rows [][]string) string {
	var b strings.Builder
	t := NewTable(&b, Column{"seq", Right}, Column{"name", Left}, Column{"bytes", Right}, Column{"note", Left})
	for _, r := range rows {
		if err := t.Row(r...); err != nil {
			panic(err)
		}
	}
	if err := t.Close(); err != nil {
		panic(err)
	}
	return b.String()
}

func TestTable(t *testing.T) {
	tests := []struct {
		name string
		rows [][]string
		want string
	}{
		{"empty", nil, "seq  name  bytes  note\n"},
		{"some", [][]string{{"1", "a_b", "7", "x"}, {"1200", "日本語 ±", "12345678", ""}, {"3", "two words  here", "", "a\x1b[31m|b\nc"}},
			"" +
				" seq  name                bytes  note\n" +
				"   1  a_b                     7  x\n" +
				"1200  日本語 ±         12345678\n" +
				"   3  two words  here            a\\x1b[31m|b\\nc\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, lang := range []string{"C", "ja_JP.UTF-8"} {
				t.Setenv("LANG", lang)
				t.Setenv("LC_ALL", lang)
				if d := cmp.Diff(tt.want, table(tt.rows)); d != "" {
					t.Errorf("LANG=%s (-want +got):\n%s", lang, d)
				}
			}
		})
	}
}

func TestTableStreams(t *testing.T) {
	var rows [][]string
	want := "seq  name  bytes  note\n"
	for i := range tableRows + 5 {
		rows = append(rows, []string{fmt.Sprint(i), "n", "1", ""})
		want += fmt.Sprintf("%3d  n         1\n", i)
	}
	if d := cmp.Diff(want, table(rows)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	// A late wide cell pushes its own row only.
	rows = append(rows, []string{"99999", "name!", "1", "x"}, []string{"1", "n", "1", "x"})
	want += "99999  name!      1  x\n  1  n         1  x\n"
	if d := cmp.Diff(want, table(rows)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
