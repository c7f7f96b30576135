package ui

import (
	"os"

	"golang.org/x/term"
)

// Width is the number of columns of the terminal behind f, 0 when there is none.
func Width(f *os.File) int {
	w, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return w
}
