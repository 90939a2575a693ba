package interop

import (
	"net/http"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	svix "github.com/svix/svix-webhooks/go"

	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/signing"
)

// library is the common interface of the Go libraries.
type library interface {
	Verify(body []byte, h http.Header) error
	Sign(id string, at time.Time, body []byte) (string, error)
}

var libraries = map[string]func(secret string) (library, error){
	"standardwebhooks": func(secret string) (library, error) { return standardwebhooks.NewWebhook(secret) },
	"svix":             func(secret string) (library, error) { return svix.NewWebhook(secret) },
}

func TestGoLibrariesVerify(t *testing.T) {
	all := messages(t)
	for name, open := range libraries {
		for _, m := range all {
			t.Run(name+"/"+m.Name, func(t *testing.T) {
				// The libraries call time.Now, which the bubble sets to the message's time.
				testbubble.Run(t, func(t *testing.T) {
					time.Sleep(time.Until(time.Unix(m.Now, 0)))
					var accepted bool
					var last error
					for _, secret := range m.Secrets {
						webhook, err := open(secret)
						if err != nil {
							t.Fatal(err)
						}
						last = webhook.Verify([]byte(m.Body), m.header())
						accepted = accepted || last == nil
					}
					if accepted != m.Standard {
						t.Errorf("accepted: %v (%v), want %v", accepted, last, m.Standard)
					}
				})
			})
		}
	}
}

func TestGoLibrariesSign(t *testing.T) {
	for name, open := range libraries {
		t.Run(name, func(t *testing.T) {
			secret, now := signing.NewSecret(), time.Now()
			webhook, err := open(secret.Reveal())
			if err != nil {
				t.Fatal(err)
			}
			for _, body := range []string{"", "{}", `{"name":"Zürich 東京"}`, "\xff\x00"} {
				signature, err := webhook.Sign("msg_1", now, []byte(body))
				if err != nil {
					t.Fatal(err)
				}
				accepts(t, secret, "msg_1", now, signature, []byte(body))
			}
		})
	}
}
