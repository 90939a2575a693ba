package routers

import (
	"encoding/json"
	"net/http"

	"github.com/storageapi/storageapi/auth"
)

// writeEnvironment is the host's own code for requests that pass the guard.
func writeEnvironment(w http.ResponseWriter, caller auth.Principal, id string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(map[string]string{"id": id, "account": caller.Account})
}
