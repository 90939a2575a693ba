package routers

import (
	"encoding/json"
	"net/http"

	"github.com/storageapi/storageapi/auth"
)

// writeEnvironment is the host's own part: what it does once the guard let a request through.
func writeEnvironment(w http.ResponseWriter, caller auth.Principal, id string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(map[string]string{"id": id, "account": caller.Account})
}
