package dashboard

import (
	"testing"

	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks"
)

func TestWebhookVersion_DependsOnNoSecret(t *testing.T) {
	with := func(value string) string {
		return webhookVersion(&webhooks.Webhook{ID: "wh_1", SecretsVersion: 1, Headers: []driver.Header{{Name: "X-Token", Value: value, Secret: true}}})
	}
	if with("guessable") != with("different") {
		t.Error("a form's version is a hash of the secret headers")
	}
}
