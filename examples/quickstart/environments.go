package main

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/storageapi/storageapi/auth"
)

// environments is the host's own part of the API. The library only guards its routes.
type environments struct {
	mu   sync.Mutex
	list map[string][]environment // by account
}

type environment struct {
	Name string `json:"name"`
}

// serveList answers GET /v2/environments.
func (e *environments) serveList(w http.ResponseWriter, r *http.Request) {
	caller, _ := auth.PrincipalFrom(r.Context())
	e.mu.Lock()
	list := slices.Clone(e.list[caller.Account])
	e.mu.Unlock()
	answer(w, http.StatusOK, map[string]any{"data": append([]environment{}, list...)})
}

// serveCreate answers POST /v2/environments.
func (e *environments) serveCreate(w http.ResponseWriter, r *http.Request) {
	caller, _ := auth.PrincipalFrom(r.Context())
	var created environment
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&created)
	if err != nil || strings.TrimSpace(created.Name) == "" {
		auth.WriteInvalid(w, "name", "is required")
		return
	}
	e.mu.Lock()
	e.list[caller.Account] = append(e.list[caller.Account], created)
	e.mu.Unlock()
	answer(w, http.StatusCreated, created)
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
