//go:build race

package corpus

// Race tells that the race detector runs, which makes everything many times
// slower. Tests that try thousands of inputs of one kind try fewer of them then:
// which ones are tried does not matter for finding races, and without the detector
// they are all tried.
const Race = true
