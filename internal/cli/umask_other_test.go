//go:build !unix

package cli_test

import "testing"

// umaskAllows reports whether files are made for others to read, which is not a
// matter of their mode here.
func umaskAllows(*testing.T) bool { return false }
