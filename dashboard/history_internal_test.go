package dashboard

import (
	"testing"

	"github.com/storageapi/storageapi/notices"
)

func TestHistory_EveryAction_HasAText(t *testing.T) {
	for _, action := range notices.Actions() {
		if actionTexts[action] == "" && action != notices.StoreRecovered {
			t.Errorf("no words for %s", action)
		}
	}
}
