package dashboard

import (
	"slices"
	"strings"

	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/webhooks"
)

// A signaturesView is the template data for how a webhook's requests are signed.
type signaturesView struct {
	V1         bool                // requests are signed with the secret
	PublicKeys []signing.PublicKey // the current one first; empty if no key pair signs
}

func viewSignatures(w *webhooks.Webhook) signaturesView {
	return signaturesView{V1: w.Signatures == nil || slices.Contains(w.Signatures, signing.V1), PublicKeys: w.PublicKeys()}
}

// fillSignatures selects the schemes of a webhook.
func (f form) fillSignatures(schemes []signing.Scheme) {
	var names []string // an empty list selects v1, the first choice
	for _, s := range schemes {
		names = append(names, string(s))
	}
	f.Values.Set("signatures", strings.Join(names, " "))
}

// signatures returns the selected schemes, or nil if the form has none.
func (f form) signatures() (schemes []signing.Scheme) {
	for name := range strings.FieldsSeq(f.Values.Get("signatures")) {
		schemes = append(schemes, signing.Scheme(name))
	}
	return schemes
}

// hideUnsent removes the header for the signature of the body if the webhook does not sign with v1.
func (p *pages) hideUnsent(attempts []attemptView, w *webhookView) {
	if w.V1 {
		return
	}
	for i := range attempts {
		attempts[i].Header = slices.DeleteFunc(attempts[i].Header, func(h headerView) bool { return h.Name == p.webhooks.SignatureHeader() })
	}
}
