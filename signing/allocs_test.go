//go:build !race

// The race detector makes sync.Pool drop items, so allocations cannot be counted with it.

package signing_test

import (
	"net/http"
	"testing"

	"github.com/storageapi/storageapi/signing"
)

func TestSignAndVerify_Allocations(t *testing.T) {
	body := []byte(`{"ok":true}`)
	signer, h := newSigner(t, secretA, secretB), http.Header{}
	// The text of the headers takes one allocation. The slices of header values take another
	// sixteenth per call, which AllocsPerRun rounds down.
	if n := testing.AllocsPerRun(1000, func() { signer.Sign(h, "evt_1", signed, body) }); n > 1 {
		t.Errorf("Sign allocates %v times, want 1", n)
	}
	if n := testing.AllocsPerRun(1000, func() { _, _ = signing.NewSigner("", secretA, secretB) }); n > 2 {
		t.Errorf("NewSigner allocates %v times, want 2", n)
	}
	verifier := newVerifier(t, signing.VerifierConfig{Secrets: []signing.Secret{secretB}, Now: at(signed)})
	if n := testing.AllocsPerRun(1000, func() { _ = verifier.Verify(h, body) }); n > 0 {
		t.Errorf("Verify allocates %v times, want 0", n)
	}
	key := signing.DataKeyOf(keyOf(1))
	record := key.Seal(secretA, "wh_1")
	if n := testing.AllocsPerRun(1000, func() { _, _ = key.Open(record, "wh_1") }); n > 3 {
		t.Errorf("Open allocates %v times, want 3", n)
	}
}
