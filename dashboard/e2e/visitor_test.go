package e2e

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/dashboard"
)

// A visitor follows a link, signs in, sees no buttons for forbidden actions, and signs out. The
// Content-Security-Policy of the pages must allow the sign-out form.
func TestVisitor(t *testing.T) {
	s := newSite(t)
	s.subscribe("/ok", "balance.low")
	settings, err := dashboard.New(dashboard.Config{
		API: s.api, SignIn: "/login", SignOut: "/logout", Home: "/home", Title: "Storage settings",
		Account: func(r *http.Request) (string, error) {
			if _, err := r.Cookie("session"); err != nil {
				return "", errors.New("not signed in")
			}
			return account, nil
		},
		May: func(_ *http.Request, action auth.Action) bool {
			return action == auth.ReadKeys || action == auth.ReadWebhooks
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/settings/", settings)
	mux.HandleFunc("GET /login", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(`<title>Sign in</title><link rel="icon" href="data:,"><form method="post"><button>Sign in</button></form>`))
	})
	mux.HandleFunc("POST /login", func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "1", Path: "/"})
		http.Redirect(w, r, r.URL.Query().Get("next"), http.StatusSeeOther)
	})
	mux.HandleFunc("POST /logout", func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "session", Path: "/", MaxAge: -1})
		http.Redirect(w, r, "/login?next=/settings/", http.StatusSeeOther)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	s.url = server.URL + "/settings/"

	w := s.open(t)
	w.visit("webhooks")
	w.see("Sign in")
	w.click("Sign in")
	w.see(s.receiver.URL)
	w.gone("Create webhook")
	w.click("Sign out")
	w.see("Sign in")
	w.visit("api-keys")
	w.see("Sign in")
}
