package report

// What the tests of whole reports need.
var (
	Schema     = schema
	Validate   = validate
	CheckJUnit = checkJUnit
	CheckSARIF = checkSARIF
)
