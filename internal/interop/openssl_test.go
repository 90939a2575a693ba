package interop

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/storageapi/storageapi/signing"
)

// oneLiner is the command from the documentation of package signing.
const oneLiner = `openssl dgst -sha256 -hmac "$SECRET"`

func TestOpenSSL(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip(err)
	}
	for _, body := range []string{"", `{"test": 2432232314}`, `{"name":"Zürich 東京"}`} {
		secret := signing.NewSecret()
		command := exec.CommandContext(t.Context(), "sh", "-c", oneLiner)
		command.Env = append(os.Environ(), "SECRET="+secret.Reveal())
		command.Stdin = strings.NewReader(body)
		output, err := command.Output()
		if err != nil {
			t.Fatal(err)
		}
		// The output is "SHA2-256(stdin)= 5f0c…"; the part before "=" depends on the version.
		_, got, _ := strings.Cut(string(output), "= ")
		if want := signing.Signature(secret, []byte(body)); strings.TrimSpace(got) != want {
			t.Errorf("openssl: %s, want %s", output, want)
		}
	}
}
