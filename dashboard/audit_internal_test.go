package dashboard

import (
	"testing"

	"github.com/storageapi/storageapi/audit"
)

func TestAuditLog_EveryAction_HasAText(t *testing.T) {
	for _, action := range audit.Actions() {
		if actionTexts[action] == "" && action != audit.StoreRecovered {
			t.Errorf("no words for %s", action)
		}
	}
}
