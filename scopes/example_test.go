package scopes_test

import (
	"encoding/json"
	"fmt"

	"github.com/storageapi/storageapi/scopes"
)

func Example() {
	vocabulary, err := scopes.NewVocabulary(scopes.Declaration{Scope: "teams:read", Description: "List teams"})
	if err != nil {
		panic(err)
	}

	// The set keeps the order of the client's scopes.
	granted, err := vocabulary.ParseSet([]string{"files:write", "files:read", "files:write"})
	if err != nil {
		panic(err)
	}
	fmt.Println(granted)
	fmt.Println(granted.Has(scopes.FilesRead), granted.Has(scopes.AccountRead))

	// A key may create only keys that can do no more than itself.
	fmt.Println(granted.Covers(scopes.Of(scopes.FilesRead)), granted.Covers(scopes.Specified()))

	_, err = vocabulary.ParseSet([]string{"files:read", "files:*"})
	fmt.Println(err)

	// Output:
	// files:write files:read
	// true false
	// true false
	// unknown scope "files:*"
}

// In JSON, a set is an array of names.
func ExampleSet_UnmarshalJSON() {
	var request struct{ Scopes scopes.Set }
	if err := json.Unmarshal([]byte(`{"scopes":["secrets:read","account:read"]}`), &request); err != nil {
		panic(err)
	}
	for scope := range request.Scopes.All() {
		fmt.Println(scope)
	}
	// Output:
	// secrets:read
	// account:read
}
