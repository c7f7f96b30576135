// Package corpus finds the recorded logs that tests may use beyond the ones
// that ship in goldens/. A clone without them runs every test it can.
package corpus

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// root is the folder of go.mod, found from this file's own place.
func root() string {
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		return "."
	}
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// Root returns the path of the module's top folder.
func Root(tb testing.TB) string {
	tb.Helper()
	return root()
}

// Dir returns the folder of the full corpus and whether it is there: the value
// of DSH_CORPUS, else ../shared/corpus beside the module.
func Dir(tb testing.TB) (string, bool) {
	tb.Helper()
	dir := os.Getenv("DSH_CORPUS")
	if dir == "" {
		dir = filepath.Join(root(), "..", "shared", "corpus")
	}
	st, err := os.Stat(dir)
	return dir, err == nil && st.IsDir()
}

// Spec returns the folder of the specification's vectors and whether it is
// there: beside the corpus, in spec.
func Spec(tb testing.TB) (string, bool) {
	tb.Helper()
	dir, ok := Dir(tb)
	if !ok {
		return "", false
	}
	dir = filepath.Join(filepath.Dir(dir), "spec")
	st, err := os.Stat(dir)
	return dir, err == nil && st.IsDir()
}
