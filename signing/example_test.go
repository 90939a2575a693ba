package signing_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/storageapi/storageapi/signing"
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

// A key is replaced: records sealed with it are sealed again with the new key.
func ExampleKeyring() {
	oldKey, newKey := make([]byte, signing.KeySize), make([]byte, signing.KeySize)
	_, _ = rand.Read(oldKey)
	_, _ = rand.Read(newKey)
	before, err := signing.NewKeyring(oldKey)
	if err != nil {
		panic(err)
	}
	record := before.Seal(signing.NewSecret(), "wh_1")

	keyring, err := signing.NewKeyring(newKey, oldKey)
	if err != nil {
		panic(err)
	}
	fmt.Println(keyring.Current(record))
	secret, err := keyring.Open(record, "wh_1")
	if err != nil {
		panic(err)
	}
	record = keyring.Seal(secret, "wh_1")
	fmt.Println(keyring.Current(record))

	_, err = keyring.Open(record, "wh_2")
	fmt.Println(errors.Is(err, signing.ErrDamaged))
	// Output:
	// false
	// true
	// true
}

func ExampleSecret() {
	secret := signing.NewSecret()
	fmt.Println(secret, len(secret.Reveal()))
	// Output: [redacted] 50
}
