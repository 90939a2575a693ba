package storageapi_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
)

// isError reports whether err is a [*storageapi.Error] with the given status and code.
func isError(err error, status int, code string) bool {
	var failure *storageapi.Error
	return errors.As(err, &failure) && failure.Status == status && failure.Code == code && failure.Message != ""
}

func answerOf(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body))}
}

func TestDecodeError(t *testing.T) {
	api, err := storageapi.NewHandler(storageapi.Config{Store: memory.New()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	_, token, err := api.Keys.Create(t.Context(), "acct", apikeys.CreateParams{Name: "a", Scopes: scopes.Specified()})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		key    string
		status int
		code   string
	}{
		{"", 401, auth.CodeUnauthorized},
		{token.Reveal(), 404, auth.CodeNotFound},
	} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", server.URL+"/v2/nothing", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(auth.HeaderName, test.key)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := storageapi.DecodeError(response); !isError(err, test.status, test.code) {
			t.Errorf("got %v, want %d %s", err, test.status, test.code)
		}
		response.Body.Close()
	}
}

func TestDecodeErrorText(t *testing.T) {
	tests := []struct {
		status int
		body   string
		want   string
	}{
		{404, `{"error":{"code":"NOT_FOUND","message":"There is no webhook with this id."}}`, "404 NOT_FOUND: There is no webhook with this id."},
		{409, `{"error":{"code":"CONFLICT","message":"m","more":1},"more":2}`, "409 CONFLICT: m"},
		{502, "<html>a proxy</html>", "502 Bad Gateway"},
		{502, "", "502 Bad Gateway"},
		{502, `{"error":"text"}`, "502 Bad Gateway"},
		{502, `{"error":{"message":"no code"}}`, "502 Bad Gateway"},
		{599, "", "599 Unknown Status"},
		{500, `{"error":{"code":"A","message":"` + strings.Repeat("x", 64<<10) + `"}}`, "500 Internal Server Error"},
	}
	for _, test := range tests {
		if err := storageapi.DecodeError(answerOf(test.status, test.body)); err == nil || err.Error() != test.want {
			t.Errorf("%d %.60s: got %v, want %s", test.status, test.body, err, test.want)
		}
	}
	for _, status := range []int{200, 204, 304, 399} {
		answer := answerOf(status, `{"error":{"code":"A","message":"m"}}`)
		err := storageapi.DecodeError(answer)
		if rest, _ := io.ReadAll(answer.Body); err != nil || len(rest) == 0 {
			t.Errorf("%d: %v, with %d bytes left", status, err, len(rest))
		}
	}
}

func TestDecodeError_InvalidInput_HasTheField(t *testing.T) {
	recorder := httptest.NewRecorder()
	auth.WriteInvalid(recorder, "expiresAt", "must be in the future")
	want := storageapi.Error{Status: 400, Code: auth.CodeValidation, Message: "expiresAt must be in the future.", Field: "expiresAt"}
	got, _ := errors.AsType[*storageapi.Error](storageapi.DecodeError(recorder.Result()))
	if diff := cmp.Diff(&want, got); diff != "" {
		t.Errorf("DecodeError (-want +got):\n%s", diff)
	}
	recorder = httptest.NewRecorder()
	auth.WriteInvalidFields(recorder, &apierr.ValidationError{Field: "name", Reason: "is required"}, &apierr.ValidationError{Field: "scopes", Reason: "are required"})
	got, _ = errors.AsType[*storageapi.Error](storageapi.DecodeError(recorder.Result()))
	if diff := cmp.Diff([]storageapi.FieldError{{Field: "name", Message: "name is required."}, {Field: "scopes", Message: "scopes are required."}}, got.Errors); diff != "" || got.Field != "name" {
		t.Errorf("the first field is %q, errors (-want +got):\n%s", got.Field, diff)
	}
}

func FuzzDecodeError(f *testing.F) {
	f.Add(404, `{"error":{"code":"NOT_FOUND","message":"There is nothing at this path."}}`)
	f.Add(502, "<html>")
	f.Add(200, `{"data":[]}`)
	f.Add(500, `{"error":null}`)
	f.Fuzz(func(t *testing.T, status int, body string) {
		err := storageapi.DecodeError(answerOf(status, body))
		var failure *storageapi.Error
		if errors.As(err, &failure) != (status >= 400) || err != nil && (failure.Status != status || failure.Code == "" && failure.Message == "") {
			t.Errorf("%d %q: %#v", status, body, err)
		}
	})
}
