package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"sync"
)

// sessions are a stand-in for the login that a host has: one click makes anybody
// acct_1.
type sessions struct {
	mu       sync.Mutex
	accounts map[string]string // by what the cookie holds
}

const sessionCookie = "session"

// account returns whose session a request belongs to.
func (s *sessions) account(r *http.Request) (string, error) {
	cookie, err := r.Cookie(sessionCookie)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if found, ok := s.accounts[cookie.Value]; ok {
		return found, nil
	}
	return "", errors.New("no such session")
}

// required sends who is not logged in to the login.
func (s *sessions) required(pages http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := s.account(r); err != nil && r.Method == http.MethodGet {
			http.Redirect(w, r, "/login", http.StatusSeeOther)
			return
		}
		pages.ServeHTTP(w, r)
	})
}

func (s *sessions) ask(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprintf(w, `<!doctype html><html lang="en"><title>Log in</title><form method="post"><button>Log in as %s</button></form>`, account)
}

func (s *sessions) begin(w http.ResponseWriter, r *http.Request) {
	value := rand.Text()
	s.mu.Lock()
	s.accounts[value] = account
	s.mu.Unlock()
	http.SetCookie(w, &http.Cookie{Name: sessionCookie, Value: value, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode})
	http.Redirect(w, r, "/settings/", http.StatusSeeOther)
}
