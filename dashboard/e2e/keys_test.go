package e2e

import (
	"strings"
	"testing"

	"github.com/storageapi/storageapi/apikeys"
)

func (s *site) keys() []apikeys.Key {
	s.Helper()
	list, err := s.api.Keys.List(s.Context(), account, apikeys.KeyQuery{Limit: 100})
	if err != nil {
		s.Fatal(err)
	}
	return list.Keys
}

// secret returns the value that the page shows once.
func (w *window) secret() string {
	w.Helper()
	return eval[string](w, `document.getElementById("secret")?.textContent ?? ""`)
}

func TestKeys(t *testing.T) {
	s := newSite(t)
	w := s.open(t)
	w.expect("status of 422")
	w.allowClipboard()

	w.visit("")
	w.at("api-keys")
	w.see("No API keys yet")
	w.click("Create your first key")
	w.at("api-keys/new")
	w.click("Create key")
	w.see("Enter a name", "Select at least one scope")
	if focused := eval[string](w, `document.activeElement.id`); focused != "name" {
		t.Errorf("the focus is on %q, not on the first field that is wrong", focused)
	}
	w.fill("name", "CI deploy")
	for button, want := range map[string]float64{"Select all": 13, "Read only": 7} {
		w.click(button)
		if got := eval[float64](w, `document.querySelectorAll("[name=scopes]:checked").length`); got != want {
			t.Errorf("%s selects %v scopes, want %v", button, got, want)
		}
	}
	w.click("Clear")
	w.check("scopes", "files:read")
	w.check("scopes", "files:write")
	if eval[bool](w, `document.getElementById("date").checkVisibility()`) {
		t.Error("a day is asked for that does not matter")
	}
	w.check("expiry", "date")
	eval[bool](w, `document.getElementById("date").value = "2999-01-31", true`)
	w.check("expiry", "never")
	w.click("Create key")
	w.see("API key created", "You won’t be able to see it again.")
	token := w.secret()
	if !s.valid(token) {
		t.Fatalf("%q is no key", token)
	}
	w.click("Copy")
	w.see("Copied")
	if copied := eval[string](w, `navigator.clipboard.readText()`); copied != token {
		t.Errorf("copied %q", copied)
	}
	eval[bool](w, `document.querySelector("[data-copy=use]").click(), true`)
	want := "curl '" + strings.TrimSuffix(s.url, "/settings/") + "/v2/api-keys/self' -H 'Api-Key: " + token + "'"
	w.wait(func() bool { return eval[string](w, `navigator.clipboard.readText()`) == want }, func() string {
		return "copied " + eval[string](w, `navigator.clipboard.readText()`) + ", want " + want
	})
	key := s.keys()[0]
	if !key.ExpiresAt.IsZero() || key.Scopes.String() != "files:read files:write" {
		t.Errorf("got %+v", key)
	}

	// After the value was shown, a reload and the back button must lead to the key's page.
	w.again("reload")
	w.at("api-keys/" + key.ID)
	w.gone(token)
	w.click("API keys")
	w.at("api-keys")
	w.again("back")
	w.at("api-keys/" + key.ID)
	w.gone(token)
	w.again("back") // to the form that was sent
	w.see("Create API key")
	w.gone(token)
	if n := len(s.keys()); n != 1 {
		t.Fatalf("%d keys", n)
	}

	// The back button must also work directly on the page that shows the value.
	w.visit("api-keys/" + key.ID)
	w.click("Rotate…")
	w.see("Rotate “CI deploy”", "1 day")
	w.press(escape)
	w.wait(func() bool { return eval[bool](w, `!document.querySelector("dialog")`) }, func() string { return "the dialog stays" })
	if focused := eval[string](w, `document.activeElement.textContent`); focused != "Rotate…" {
		t.Errorf("after the dialog the focus is on %q", focused)
	}
	w.click("Rotate…")
	w.click("Rotate key")
	w.see("API key rotated", "The previous value works until")
	next := w.secret()
	if !s.valid(next) || !s.valid(token) || next == token {
		t.Error("one of the values does not work")
	}
	w.click("I’ve copied it")
	w.see("This key was rotated")
	w.again("back")
	w.at("api-keys/" + key.ID)
	w.gone(next)

	w.fill("name", "CI, rotated")
	w.click("Rename")
	w.see("Key renamed.")
	w.at("api-keys/" + key.ID) // without the notice
	w.click("API keys")
	w.see("CI, rotated")
	w.click("Revoke CI, rotated")
	w.see("Revoke “CI, rotated”?")
	w.click("Cancel")
	w.click("Revoke CI, rotated")
	w.click("Revoke “CI, rotated”")
	w.see("Key revoked", "No API keys yet")
	if s.valid(next) || s.valid(token) {
		t.Error("a value works that was revoked")
	}
}

// Creating, rotating and revoking keys must also work without JavaScript, and values must still be
// shown only once.
func TestKeysWithoutScripts(t *testing.T) {
	s := newSite(t)
	w := s.open(t)
	w.expect("status of 4")
	w.withoutScripts()
	w.visit("api-keys/new")
	w.fill("name", "no scripts")
	w.check("scopes", "account:read")
	w.click("Create key")
	w.see("API key created")
	token := w.secret()
	if !s.valid(token) {
		t.Fatalf("%q is no key", token)
	}
	if eval[bool](w, `document.querySelector("[data-copy]").checkVisibility()`) {
		t.Error("a button is shown that does nothing")
	}
	key := s.keys()[0]

	w.again("reload") // sends the form again
	w.see("did not create another")
	w.gone(token)
	w.click("Go to key")
	w.see(key.ID)
	w.again("back")
	w.gone(token)
	w.visit("api-keys/" + key.ID + "/rotate")
	w.click("Rotate key")
	w.see("API key rotated")
	next := w.secret()
	w.click("I’ve copied it")
	w.see("This key was rotated")
	w.again("back") // shows a page without the value, or sends the form again
	w.gone(next)
	w.visit("api-keys")
	w.click("Revoke no scripts")
	w.at("api-keys/" + key.ID + "/revoke")
	if !s.valid(token) || !s.valid(next) || len(s.keys()) != 1 {
		t.Error("a form that was sent again did something")
	}
	w.click("Revoke “no scripts”")
	w.see("Key revoked")
	if s.valid(next) || s.valid(token) {
		t.Error("a value works that was revoked")
	}
}

// TestBack leaves the page that shows a value and returns to it at once. Even if the browser has
// kept the page, it must not show the value again.
func TestBack(t *testing.T) {
	for _, scripts := range []bool{true, false} {
		s := newSite(t)
		w := s.open(t)
		w.expect("ERR_CACHE_MISS")
		if !scripts {
			w.withoutScripts()
		}
		w.visit("api-keys/new")
		w.fill("name", "a key")
		w.check("scopes", "account:read")
		w.click("Create key")
		w.see("API key created")
		token := w.secret()
		w.click("Webhooks")
		w.see("No webhooks yet")
		w.again("back")
		w.gone(token)
		w.again("forward")
		w.again("back")
		w.gone(token)
		if n := len(s.keys()); n != 1 {
			t.Errorf("%d keys", n)
		}
	}
}

// Users must be able to do every step with the keyboard.
func TestKeyboard(t *testing.T) {
	s := newSite(t)
	w := s.open(t)
	w.visit("api-keys/new")
	focused := func() string {
		return eval[string](w, `(e => e.id || e.value || e.textContent.trim())(document.activeElement)`)
	}
	var order []string
	w.press(tab)
	if first := focused(); first != "Skip to content" {
		t.Errorf("the first is %q", first)
	}
	w.press(enter)
	w.press(tab)
	order = append(order, focused())
	for range 25 {
		if order[len(order)-1] == "Create key" {
			break
		}
		w.press(tab)
		order = append(order, focused())
		switch order[len(order)-1] {
		case "name":
			w.press("a key")
		case "files:read":
			w.press(" ")
		}
		if !eval[bool](w, `getComputedStyle(document.activeElement).outlineStyle != "none"`) {
			t.Errorf("the focus on %s is not to be seen", order[len(order)-1])
		}
	}
	if got := strings.Join(order, " "); !strings.HasPrefix(got, "API keys name Select all Read only Clear environments:read environments:write files:read") || !strings.HasSuffix(got, "account:read resources 90 networks rate Create key") {
		t.Errorf("the order is %q", order)
	}
	w.press(enter)
	w.see("API key created")
	w.visit("api-keys")
	for range 16 { // skips the filters
		if eval[string](w, `document.activeElement.ariaLabel ?? ""`) == "Revoke a key" {
			break
		}
		w.press(tab)
	}
	w.press(enter)
	w.see("Revoke “a key”?")
	for range 6 { // the focus must stay in the dialog
		w.press(tab)
		if inside := eval[bool](w, `document.activeElement === document.body || !!document.activeElement.closest("dialog")`); !inside {
			t.Errorf("the focus leaves the dialog for %q", focused())
		}
	}
	w.press(escape)
	w.wait(func() bool { return eval[bool](w, `!document.querySelector("dialog")`) }, func() string { return "the dialog stays" })
	if label := eval[string](w, `document.activeElement.ariaLabel`); label != "Revoke a key" {
		t.Errorf("the focus is on %q", label)
	}
}
