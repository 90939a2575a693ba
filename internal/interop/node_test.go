package interop

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/storageapi/storageapi/signing"
)

// verdict is the result of verify.mjs for one message.
type verdict struct {
	Service   bool            // verified by node:crypto
	Standard  map[string]bool // whether each library accepts the message
	Signature map[string]string
}

func TestNode(t *testing.T) {
	all := messages(t)
	input, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	var verdicts []verdict
	if err := json.Unmarshal(runNode(t, input), &verdicts); err != nil {
		t.Fatal(err)
	}
	if len(verdicts) != len(all) {
		t.Fatalf("%d verdicts on %d messages", len(verdicts), len(all))
	}
	for i, m := range all {
		t.Run(m.Name, func(t *testing.T) {
			got := verdicts[i]
			if got.Service != m.Service {
				t.Errorf("node:crypto accepts: %v, want %v", got.Service, m.Service)
			}
			secret, err := signing.ParseSecret(m.Secrets[0])
			if err != nil {
				t.Fatal(err)
			}
			for _, library := range []string{"standardwebhooks", "svix"} {
				if accepted, ok := got.Standard[library]; !ok || accepted != m.Standard {
					t.Errorf("%s accepts: %v, want %v", library, accepted, m.Standard)
				}
				accepts(t, secret, "msg_1", time.Unix(m.Now, 0), got.Signature[library], []byte(m.Body))
			}
		})
	}
}

// runNode runs verify.mjs, if Node.js and the packages pinned in package-lock.json are installed.
func runNode(t *testing.T, input []byte) []byte {
	t.Helper()
	node, err := exec.LookPath("node")
	if err == nil {
		_, err = os.Stat("node_modules")
	}
	if err != nil {
		const message = "needs Node.js, and \"npm ci\" run in internal/interop: %v"
		if os.Getenv("CI") != "" {
			t.Fatalf(message, err)
		}
		t.Skipf(message, err)
	}
	command := exec.CommandContext(t.Context(), node, "verify.mjs")
	command.Stdin = bytes.NewReader(input)
	command.Stderr = os.Stderr
	output, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	return output
}
