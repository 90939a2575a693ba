// Package signing signs webhook requests, and verifies them on the receiver's side:
//
//	signer, err := signing.NewSigner("", webhook.Secret)
//	signer.Sign(request.Header, event.ID, time.Now(), event.Body)
//
//	verifier, err := signing.NewVerifier(signing.VerifierConfig{Secrets: []signing.Secret{secret}})
//	mux.Handle("POST /hooks", verifier.Handler(receive))
//
// # Signatures
//
// By default, a request carries two signatures of its body, made with the same [Secret]:
//
//	X-Service-Signature: 5f0c…                  lower-case hex of HMAC-SHA256(secret as shown, body)
//	Webhook-Id:          evt_01J…               the event, the same on every retry of it
//	Webhook-Timestamp:   1614265330             seconds since 1970, when this request was signed
//	Webhook-Signature:   v1,g0hM9SsE+OTPJTGt…   base64 of HMAC-SHA256(decoded secret, id.timestamp.body)
//
// The first is the simplest way to authenticate a body: any language verifies it in one line. The
// other three are Standard Webhooks v1 (https://www.standardwebhooks.com), supported by libraries
// in a dozen languages. They also sign the time of the request, so that a recorded request becomes
// useless after five minutes.
//
// The method, the path and all other headers are not signed: do not base decisions on them.
//
// # Sending
//
// A [Signer] belongs to one webhook and sets all four headers. [Signer.With] adds a signature by
// scheme [V1a] to Webhook-Signature, or replaces both signatures by it: "v1a," and the base64 of an
// Ed25519 signature of id.timestamp.body, which receivers verify with a [PublicKey].
//
// # Receiving
//
// In Go, wrap the receiving handler in [Verifier.Handler], or call [Verifier.Verify] with the
// headers and the body as received, before any decoding. Both require both signatures, or one
// signature by V1a if the verifier has public keys, so an attacker cannot remove the signature that
// protects against replay. Within the tolerance a request can still arrive twice, if only because
// of a retry: remember the Webhook-Id for at least as long as retries continue.
//
// In other languages, use a Standard Webhooks library, or compare each comma-separated value of
// X-Service-Signature in constant time with the hex digits printed by
//
//	openssl dgst -sha256 -hmac "$SECRET" < body
//
// One value must match. This check alone does not protect against replay. The directory testdata
// has test vectors for implementations in any language.
//
// # Storing secrets
//
// Both sides need the secret itself, so it cannot be stored as a hash. A store seals it with a
// [DataKey], which a [Sealer] seals with a key that is not in the store: a [Keyring] of keys in
// memory, or the host's Sealer on a key management service.
//
// # Rotating secrets
//
// While two secrets are live, a request is signed with both: X-Service-Signature holds one value
// per secret separated by commas, Webhook-Signature one per secret separated by spaces. A receiver
// accepts a signature by either secret, so it can switch to the new secret at any time in between.
package signing
