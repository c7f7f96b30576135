package jsjson_test

import (
	"fmt"

	"github.com/dsh-audit/dsh-audit/internal/jsjson"
)

func ExampleStringify() {
	out, facts, err := jsjson.Stringify([]byte(`{"b": 1.0, "2": "\u0041", "b": -0}`))
	fmt.Println(string(out), err)
	fmt.Println(facts == jsjson.Whitespace|jsjson.KeyOrder|jsjson.DuplicateKey|jsjson.NumberForm|jsjson.NegativeZero|jsjson.EscapeForm)
	_, _, err = jsjson.Stringify([]byte(`{"a":1,}`))
	fmt.Println(err)
	// Output:
	// {"2":"A","b":0} <nil>
	// true
	// offset 7: expected key, found '}'
}

func ExampleCheckFields() {
	var v [3][]byte
	others, facts, err := jsjson.CheckFields([]byte(`{"type":"turn/start","seq":1,"data":{"turn":1}}`), v[:], []string{"type", "seq", "time"})
	fmt.Printf("%s %s %v; %d more, canonical %v, %v\n", v[0], v[1], v[2] == nil, others, facts.Canonical(), err)
	// Output:
	// "turn/start" 1 true; 1 more, canonical true, <nil>
}
