package signing

// Signature returns the value of X-Service-Signature for one secret (docs/spec.md, section 6): the
// lower-case hex of HMAC-SHA256 of body, keyed with the secret's text. It equals the last word
// printed by
//
//	openssl dgst -sha256 -hmac "$SECRET" < body
//
// Compare signatures with [HasSignature], not with ==. Signature panics if the secret is zero: a
// receiver that has lost its secret must not accept forged requests.
func Signature(secret Secret, body []byte) string {
	mustNotBeZero(secret)
	w := getWorkspace()
	defer putWorkspace(w)
	return string(w.appendService(nil, secret.keyed(), body))
}

// HasSignature reports whether value, the content of X-Service-Signature, contains the secret's
// signature of body. During a rotation value holds several signatures, separated by commas, of
// which up to 16 are checked. Use HasSignature in a receiver that verifies only this header.
// Unlike a [Verifier] it does not protect against replay. It panics if the secret is zero.
func HasSignature(value string, secret Secret, body []byte) bool {
	mustNotBeZero(secret)
	w := getWorkspace()
	defer putWorkspace(w)
	return w.madeService(value, []Secret{secret}, body)
}

func mustNotBeZero(secret Secret) {
	if secret.IsZero() {
		panic("signing: zero Secret")
	}
}
