//go:build !race

package corpus

// Race tells that the race detector runs. See race.go.
const Race = false
