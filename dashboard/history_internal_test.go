package dashboard

import (
	"testing"

	"github.com/storageapi/storageapi/notices"
)

// TestEveryActionHasWords: none of an account is shown as the API calls it.
func TestEveryActionHasWords(t *testing.T) {
	for _, action := range notices.Actions() {
		if actionTexts[action] == "" && action != notices.StoreRecovered {
			t.Errorf("no words for %s", action)
		}
	}
}
