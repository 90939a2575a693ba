package webhooks

import (
	"slices"

	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/signing"
)

// storedSignatures returns schemes in their stored form.
func storedSignatures(schemes []signing.Scheme) ([]signing.Scheme, error) {
	stored := slices.Compact(slices.Sorted(slices.Values(schemes)))
	switch {
	case len(stored) == 0, slices.ContainsFunc(stored, func(s signing.Scheme) bool { return s != signing.V1 && s != signing.V1a }):
		return nil, input.Invalid("signatures", "must be v1, v1a or both")
	case len(stored) == 1 && stored[0] == signing.V1:
		return nil, nil
	}
	return stored, nil
}

// signerOf returns a signer for the webhook's requests. header is the name of the signature header.
func signerOf(w *Webhook, header string, secrets ...signing.Secret) (*signing.Signer, error) {
	signer, err := signing.NewSigner(header, secrets...)
	if err == nil && w.Signatures != nil {
		signer, err = signer.With(w.Signatures...)
	}
	return signer, err
}
