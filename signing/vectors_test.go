package signing_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/signing"
)

func TestVectorsSign(t *testing.T) {
	for _, v := range readVectors(t).Sign {
		t.Run(v.Name, func(t *testing.T) {
			h := http.Header{}
			newSigner(t, parseSecrets(t, v.Secrets)...).Sign(h, v.ID, time.Unix(v.Timestamp, 0), []byte(v.Body))
			if diff := cmp.Diff(headerOf(v.Headers), h); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestVectorsVerify(t *testing.T) {
	all := readVectors(t)
	sentinels := map[string]error{"signature": signing.ErrSignature, "timestamp": signing.ErrTimestamp}
	for _, v := range all.Verify {
		t.Run(v.Name, func(t *testing.T) {
			secrets, h, body := parseSecrets(t, v.Secrets), headerOf(v.Headers), []byte(v.Body)

			var want error
			if v.Error != nil {
				want = sentinels[*v.Error]
			}
			if (want == nil) != (v.Service && v.Standard) {
				t.Fatal("contradictory test vector")
			}
			verifier := newVerifier(t, signing.VerifierConfig{
				Secrets:   secrets,
				Tolerance: time.Duration(all.ToleranceSeconds) * time.Second,
				Now:       at(time.Unix(v.Now, 0)),
			})
			if err := verifier.Verify(h, body); !errors.Is(err, want) {
				t.Errorf("Verify: %v, want %v", err, want)
			}

			service := false
			for _, secret := range secrets {
				service = service || signing.HasSignature(h.Get(signing.DefaultHeader), secret, body)
			}
			if service != v.Service {
				t.Errorf("HasSignature: %v, want %v", service, v.Service)
			}
		})
	}
}
