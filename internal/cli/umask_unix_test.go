//go:build unix

package cli_test

import (
	"syscall"
	"testing"
)

// umaskAllows reports whether files are made for others to read.
func umaskAllows(t *testing.T) bool {
	old := syscall.Umask(0)
	syscall.Umask(old)
	return old&0o044 == 0
}
