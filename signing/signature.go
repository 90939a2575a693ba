package signing

// Signature returns the value of X-Service-Signature for one secret (docs/spec.md, section 6): the lower-case hex of
// HMAC-SHA256 of body, keyed with the secret's text as shown. It is what ends the line that this prints:
//
//	openssl dgst -sha256 -hmac "$SECRET" < body
//
// Compare signatures with [HasSignature], not with ==. Signature panics if the secret is zero: a receiver that
// lost its secret must not accept what anyone can sign.
func Signature(secret Secret, body []byte) string {
	mustNotBeZero(secret)
	w := getWorkspace()
	defer putWorkspace(w)
	return string(w.appendService(nil, secret.keyed(), body))
}

// HasSignature reports whether value, as it stands in X-Service-Signature, holds the secret's signature of body: alone,
// or among up to 16 separated by commas as during a rotation. It is for a receiver that wants no more than that; it
// does not protect against replay, for which there is [Verifier]. It panics if the secret is zero.
func HasSignature(value string, secret Secret, body []byte) bool {
	mustNotBeZero(secret)
	w := getWorkspace()
	defer putWorkspace(w)
	return w.madeService(value, []Secret{secret}, body)
}

func mustNotBeZero(secret Secret) {
	if secret.IsZero() {
		panic("signing: the secret is zero")
	}
}
