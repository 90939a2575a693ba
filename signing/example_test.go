package signing_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/bolt"
)

// A sender signs a request; the receiver rejects all other requests.
func Example() {
	secret := signing.NewSecret()
	body := `{"id":"evt_1","type":"balance.low"}`

	// The receiver.
	verifier, err := signing.NewVerifier(signing.VerifierConfig{Secrets: []signing.Secret{secret}})
	if err != nil {
		panic(err)
	}
	receiver := httptest.NewServer(verifier.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		event, _ := io.ReadAll(r.Body)
		fmt.Printf("%s: %s\n", r.Header.Get(signing.HeaderID), event)
	})))
	defer receiver.Close()

	// The sender.
	signer, err := signing.NewSigner("", secret)
	if err != nil {
		panic(err)
	}
	for _, sent := range []string{body, `{"id":"evt_1","type":"forged"}`} {
		request, err := http.NewRequest(http.MethodPost, receiver.URL, strings.NewReader(sent))
		if err != nil {
			panic(err)
		}
		signer.Sign(request.Header, "evt_1", time.Now(), []byte(body))
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			panic(err)
		}
		response.Body.Close()
		fmt.Println(response.Status)
	}

	// Output:
	// evt_1: {"id":"evt_1","type":"balance.low"}
	// 200 OK
	// 401 Unauthorized
}

func ExampleSigner_Sign() {
	secret, err := signing.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		panic(err)
	}
	signer, err := signing.NewSigner("", secret)
	if err != nil {
		panic(err)
	}
	header := http.Header{}
	signer.Sign(header, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	fmt.Println(header.Get(signing.DefaultHeader))
	fmt.Println(header.Get(signing.HeaderTimestamp), header.Get(signing.HeaderSignature))
	// Output:
	// 80ec8a89ce3cd22133a1066caecb4d04fea7467657c8514d717ec42c38a5c94c
	// 1614265330 v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=
}

// A receiver may verify only X-Service-Signature.
func ExampleHasSignature() {
	secret, err := signing.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		panic(err)
	}
	value := "80ec8a89ce3cd22133a1066caecb4d04fea7467657c8514d717ec42c38a5c94c" // r.Header.Get(signing.DefaultHeader)
	fmt.Println(signing.HasSignature(value, secret, []byte(`{"test": 2432232314}`)))
	fmt.Println(signing.HasSignature(value, secret, []byte(`{"test": 1}`)))
	// Output:
	// true
	// false
}

// To replace a key, put the new key first: the store opens its data key with the old key, and seals
// it again with the new key.
func ExampleKeyring() {
	oldKey, newKey := make([]byte, signing.KeySize), make([]byte, signing.KeySize)
	_, _ = rand.Read(oldKey)
	_, _ = rand.Read(newKey)
	before, err := signing.NewKeyring(oldKey)
	if err != nil {
		panic(err)
	}
	during, err := signing.NewKeyring(newKey, oldKey)
	if err != nil {
		panic(err)
	}
	path := filepath.Join(os.TempDir(), "signing-example.db")
	defer func() { _ = os.Remove(path) }()
	for _, keyring := range []*signing.Keyring{before, during} {
		store, err := bolt.Open(path, bolt.Sealed(keyring))
		if err != nil {
			panic(err)
		}
		_ = store.Close()
	}
	_, err = bolt.Open(path, bolt.Sealed(before))
	fmt.Println(errors.Is(err, signing.ErrSealed))
	// Output: true
}

// A kms simulates the client of a key management service, which encrypts under a key with an ID and
// never returns the key.
type kms struct{}

func (kms) Encrypt(ctx context.Context, keyID string, plain []byte) (cipherText []byte, err error) {
	return append([]byte(keyID+" "), plain...), ctx.Err() // a real service encrypts
}

func (kms) Decrypt(ctx context.Context, cipherText []byte) (keyID string, plain []byte, err error) {
	id, plain, ok := bytes.Cut(cipherText, []byte(" "))
	if !ok {
		return "", nil, errors.New("InvalidCiphertextException")
	}
	return string(id), plain, ctx.Err()
}

// A kmsSealer is a signing.Sealer that uses a key management service.
type kmsSealer struct {
	client kms
	keyID  string
}

func (s kmsSealer) Seal(ctx context.Context, plain []byte) ([]byte, error) {
	return s.client.Encrypt(ctx, s.keyID, plain)
}

func (s kmsSealer) Open(ctx context.Context, sealed []byte) (plain []byte, stale bool, err error) {
	keyID, plain, err := s.client.Decrypt(ctx, sealed)
	return plain, keyID != s.keyID, err
}

// A key management service protects a store's data key. The store calls it only when it is opened.
func ExampleSealer() {
	path := filepath.Join(os.TempDir(), "signing-example-kms.db")
	defer func() { _ = os.Remove(path) }()
	for _, keyID := range []string{"key-2026", "key-2027"} { // the second reseals the data key
		store, err := bolt.Open(path, bolt.Sealed(kmsSealer{keyID: keyID}))
		if err != nil {
			panic(err)
		}
		_ = store.Close()
	}
	_, err := bolt.Open(path)
	fmt.Println(errors.Is(err, signing.ErrSealed))
	// Output: true
}

func ExampleSecret() {
	secret := signing.NewSecret()
	fmt.Println(secret, len(secret.Reveal()))
	// Output: [redacted] 50
}
