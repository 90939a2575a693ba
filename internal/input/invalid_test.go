package input

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/apierr"
)

func TestJoinInvalid(t *testing.T) {
	name, again, size, other := Invalid("name", "is required"), Invalid("name", "is short"), Invalid("size", "is odd"), errors.New("other")
	both := apierr.ValidationErrors(InvalidFields(JoinInvalid(name, size)))
	for want, errs := range map[string][]error{
		"<nil>":                         {nil, apierr.ValidationErrors(nil)},
		"name is required":              {nil, name, again},
		"name is required; size is odd": {fmt.Errorf("create: %w", name), both},
		"size is odd; name is required": {size, fmt.Errorf("create: %w", both)},
		"other":                         {name, other, size},
	} {
		if got := fmt.Sprint(JoinInvalid(errs...)); got != want {
			t.Errorf("%v: got %q, want %q", errs, got, want)
		}
	}
	first, _ := errors.AsType[*apierr.ValidationError](fmt.Errorf("create: %w", both))
	if diff := cmp.Diff(&apierr.ValidationError{Field: "name", Reason: "is required"}, first); diff != "" {
		t.Errorf("the first of several (-want +got):\n%s", diff)
	}
}
