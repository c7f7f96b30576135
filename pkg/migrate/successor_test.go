package migrate

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The children that the step to generation 4 lists behind the last event are no
// events that came since, as long as they look like its list.
func TestListedChildren(t *testing.T) {
	logs := generations(t, written(sound))
	lines := bytes.Split(bytes.TrimSpace(logs[4]), []byte("\n"))
	next := int64(len(lines) - 1)
	_, last, _ := strings.Cut(string(lines[next]), `"time":`)
	last, _, _ = strings.Cut(last, ",")
	row := func(version, created int, id, time string) string {
		return fmt.Sprintf(`"time":%s,"data":{"version":%d,"childId":%q,"childCreatedAt":%d,"mode":"unknown"}}`, time, version, id, created)
	}
	for name, tt := range map[string]struct {
		rows          []string
		listed, since int64
	}{
		"none":                {nil, 0, 0},
		"two":                 {[]string{row(1, 5, "b", last), row(1, 7, "a", last)}, 2, 0},
		"two of one time":     {[]string{row(1, 5, "a", last), row(1, 5, "b", last)}, 2, 0},
		"one, and one later":  {[]string{row(1, 5, "b", last), row(1, 7, "a", "1999999999999")}, 1, 1},
		"one out of order":    {[]string{row(1, 5, "b", last), row(1, 4, "a", last)}, 1, 1},
		"one of a newer form": {[]string{row(2, 5, "b", last), row(1, 6, "a", last)}, 0, 2},
		"one twice":           {[]string{row(1, 5, "b", last), row(1, 5, "b", last)}, 1, 1},
	} {
		newer := string(logs[4])
		for i, r := range tt.rows {
			newer += fmt.Sprintf(`{"type":"subagent/catalog","seq":%d,%s`+"\n", next+int64(i), r)
		}
		dir := t.TempDir()
		older, file := filepath.Join(dir, "session.v3.jsonl"), filepath.Join(dir, "session.v4.jsonl")
		for path, text := range map[string]string{older: string(logs[3]), file: newer} {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s, err := Follow(context.Background(), openLog(t, older), openLog(t, file))
		if err != nil {
			t.Fatal(err)
		}
		if !s.Same() || s.Carried != next || s.Listed != tt.listed || s.Since != tt.since {
			t.Errorf("%s: same %v, carried %d, listed %d, since %d (%+v), want %d, %d, %d", name, s.Same(), s.Carried, s.Listed, s.Since, s.First, next, tt.listed, tt.since)
		}
	}
}
