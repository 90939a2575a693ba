package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// sessions is a stand-in for a host's login: one click logs any visitor in as acct_1.
type sessions struct {
	mu       sync.Mutex
	accounts map[string]string // by cookie value
}

const sessionCookie = "session"

// account returns the account of a request's session.
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
	http.Redirect(w, r, back(r), http.StatusSeeOther)
}

// back returns the page that the visitor requested before the login. It accepts only a path,
// because next may come from another site.
func back(r *http.Request) string {
	next := r.URL.Query().Get("next")
	if !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") || strings.Contains(next, `\`) {
		return "/settings/"
	}
	return next
}

func (s *sessions) end(w http.ResponseWriter, r *http.Request) {
	if cookie, err := r.Cookie(sessionCookie); err == nil {
		s.mu.Lock()
		delete(s.accounts, cookie.Value)
		s.mu.Unlock()
	}
	http.SetCookie(w, &http.Cookie{Name: sessionCookie, Path: "/", MaxAge: -1})
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}
