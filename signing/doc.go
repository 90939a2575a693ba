// Package signing signs webhook requests, and verifies them on the receiver's side:
//
//	signer, err := signing.NewSigner("", webhook.Secret)
//	signer.Sign(request.Header, event.ID, time.Now(), event.Body)
//
//	verifier, err := signing.NewVerifier(signing.VerifierConfig{Secrets: []signing.Secret{secret}})
//	mux.Handle("POST /hooks", verifier.Handler(receive))
//
// # What is signed
//
// Every request carries two signatures of the same bytes, made with the same [Secret]:
//
//	X-Service-Signature: 5f0c…                  lower-case hex of HMAC-SHA256(secret as shown, body)
//	Webhook-Id:          evt_01J…               the event, the same on every retry of it
//	Webhook-Timestamp:   1614265330             seconds since 1970, when this request was signed
//	Webhook-Signature:   v1,g0hM9SsE+OTPJTGt…   base64 of HMAC-SHA256(decoded secret, id.timestamp.body)
//
// The first is the plainest thing that authenticates a body: any language verifies it in a line. The other three
// are Standard Webhooks v1 (https://www.standardwebhooks.com), which libraries in a dozen languages verify, and
// which also says when the request was made, so that a recording of it is worthless five minutes later.
//
// The method, the path and every other header are not signed: do not decide anything by them.
//
// # Sending
//
// A [Signer] belongs to one webhook and sets all four headers.
//
// # Receiving
//
// In Go, wrap the receiving handler in [Verifier.Handler], or call [Verifier.Verify] with the header and the body as
// it arrived, before any decoding. Both want both signatures, so an attacker cannot strip the half that protects against
// replay and keep the other. Within the tolerance a request can still arrive twice, by a retry if not by an
// attacker: remember the Webhook-Id for at least as long as retries go on.
//
// In other languages, use a Standard Webhooks library, or compare each of the comma-separated values of X-Service-Signature
// with the hex that this prints,
//
//	openssl dgst -sha256 -hmac "$SECRET" < body
//
// in constant time: one of them has to be equal. That alone does not protect against replay. The directory testdata holds vectors with
// which an implementation in any language can be checked.
//
// # Keeping a secret
//
// Both sides need the secret itself, so it cannot be stored as a hash. A [Keyring] seals it under keys that are kept
// elsewhere.
//
// # Rotating a secret
//
// While two secrets are live a request is signed with both: X-Service-Signature holds one value per secret separated
// by commas, Webhook-Signature one per secret separated by spaces. A receiver accepts either, so it may change over
// at any moment in between.
package signing
