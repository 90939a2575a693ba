package scopes_test

import (
	"encoding/json"
	"fmt"

	"github.com/storageapi/storageapi/scopes"
)

func Example() {
	// The scopes in the client's order.
	granted, err := scopes.ParseSet([]string{"files:write", "files:read", "files:write"})
	if err != nil {
		panic(err)
	}
	fmt.Println(granted)
	fmt.Println(granted.Has(scopes.FilesRead), granted.Has(scopes.AccountRead))

	// A key may create keys that can do no more than it can.
	fmt.Println(granted.Covers(scopes.Of(scopes.FilesRead)), granted.Covers(scopes.All()))

	_, err = scopes.ParseSet([]string{"files:read", "files:*"})
	fmt.Println(err)

	// Output:
	// files:write files:read
	// true false
	// true false
	// unknown scope "files:*"
}

// A set is an array of names in JSON.
func ExampleSet_UnmarshalJSON() {
	var request struct{ Scopes scopes.Set }
	if err := json.Unmarshal([]byte(`{"scopes":["secrets:read","account:read"]}`), &request); err != nil {
		panic(err)
	}
	for scope := range request.Scopes.All() {
		fmt.Printf("%s: %s\n", scope, scope.Description())
	}
	// Output:
	// secrets:read: Read secrets
	// account:read: Read account info and usage
}
