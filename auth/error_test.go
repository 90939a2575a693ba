package auth_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
)

func TestWriteError_AnyMessage_IsValidJSON(t *testing.T) {
	for _, message := range []string{"", "plain", `"quoted" \ back`, "line\nend\x00", "Ümläut 🙂", "<script>&", "bad \xff UTF-8"} {
		recorder := httptest.NewRecorder()
		auth.WriteError(recorder, http.StatusConflict, "CONFLICT", message)
		var got map[string]map[string]string
		if err := json.Unmarshal(recorder.Body.Bytes(), &got); err != nil {
			t.Fatalf("%q: %v in %s", message, err, recorder.Body)
		}
		want := map[string]map[string]string{"error": {"code": "CONFLICT", "message": string([]rune(message))}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", message, diff)
		}
		if recorder.Code != http.StatusConflict {
			t.Errorf("status %d", recorder.Code)
		}
	}
}

func TestWriteForbidden_ScopesMissing_NamesThem(t *testing.T) {
	guard, err := auth.New(allKeys, auth.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		required   scopes.Set
		body       string
		challenges []string
	}{
		{scopes.Set{}, `{"error":{"code":"FORBIDDEN","message":"No."}}`, nil},
		{
			scopes.Of(scopes.FilesRead, "teams:read"), `{"error":{"code":"FORBIDDEN","message":"No.","requiredScopes":["files:read","teams:read"]}}`,
			[]string{`ApiKey realm="storageapi", error="insufficient_scope", scope="files:read teams:read"`},
		},
	} {
		recorder := httptest.NewRecorder()
		guard.WriteForbidden(recorder, "No.", test.required)
		if recorder.Code != http.StatusForbidden || recorder.Body.String() != test.body+"\n" {
			t.Errorf("%v: got %d %s, want 403 %s", test.required, recorder.Code, recorder.Body, test.body)
		}
		if diff := cmp.Diff(test.challenges, recorder.Header().Values("WWW-Authenticate")); diff != "" {
			t.Errorf("%v: challenges (-want +got):\n%s", test.required, diff)
		}
	}
}

func TestWriteInvalidFields_Several_AreListed(t *testing.T) {
	recorder := httptest.NewRecorder()
	auth.WriteInvalidFields(recorder, &apierr.ValidationError{Field: "name", Reason: "is required"}, &apierr.ValidationError{Field: "size", Reason: "must be < 3"})
	const want = `{"error":{"code":"VALIDATION_ERROR","message":"name is required. size must be < 3.","field":"name","errors":[{"field":"name","message":"name is required."},{"field":"size","message":"size must be < 3."}]}}` + "\n"
	if recorder.Code != http.StatusBadRequest || recorder.Body.String() != want {
		t.Errorf("got %d %s, want 400 %s", recorder.Code, recorder.Body, want)
	}
}

func TestWriteInvalid_Field_IsInMessageAndMember(t *testing.T) {
	recorder := httptest.NewRecorder()
	auth.WriteInvalid(recorder, "name", "is required")
	const want = `{"error":{"code":"VALIDATION_ERROR","message":"name is required.","field":"name"}}` + "\n"
	if recorder.Code != http.StatusBadRequest || recorder.Body.String() != want {
		t.Errorf("got %d %s, want 400 %s", recorder.Code, recorder.Body, want)
	}
}
