package cli_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/dsh-audit/dsh-audit/internal/cli"
)

// interrupting is standard input during which the user interrupts the run.
type interrupting struct {
	io.Reader
	cancel func()
}

func (r *interrupting) Read(p []byte) (int, error) {
	r.cancel()
	return r.Reader.Read(p)
}

func TestInterrupted(t *testing.T) {
	log, err := os.ReadFile("testdata/logs/watch.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{
		"dsh-replay requests -", "dsh-replay requests --bodies -", "dsh-replay show - 1.1", "dsh-replay messages -",
		"dsh-replay surface -", "dsh-replay header -", "dsh-replay events -",
		"dsh-verify -", "dsh-verify --format json -", "dsh-diff -@1.1 testdata/logs/watch.jsonl@1.1",
	} {
		ctx, cancel := context.WithCancel(context.Background())
		words := strings.Fields(args)
		var out, errs bytes.Buffer
		code := cli.Execute(ctx, programs()[words[0]], words, &interrupting{bytes.NewReader(log), cancel}, &out, &errs)
		cancel()
		if want := words[0] + ": error: interrupted\n"; code != 130 || errs.String() != want {
			t.Errorf("%s: code %d, %q; want 130, %q", args, code, errs.String(), want)
		}
	}
}
