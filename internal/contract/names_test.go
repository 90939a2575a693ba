package contract

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/storageapi/storageapi/scopes"
)

// TestNames renames a key to random names. The API must accept exactly the names that the document
// allows.
func TestNames(t *testing.T) {
	h := newHost(t, load(t), nil)
	id, _ := h.key("a key", scopes.Of(scopes.FilesRead))
	random := rand.New(rand.NewPCG(1, 2))
	alphabet := []rune("abé密👩❤\u0301\u094d \u00a0\u3000\u200c\u200d\u2060\ufeff\u034f\ufe0f\U000e0100\U000e0062\u00ad\u2800\u3164\u0600\ue000\u200b\u202e\u2028\u0085")
	taken := 0
	const names = 1500
	for range names {
		name := make([]rune, 1+random.IntN(5))
		for i := range name {
			name[i] = alphabet[random.IntN(len(alphabet))]
			if random.IntN(3) == 0 {
				name[i] = alphabet[random.IntN(8)]
			}
		}
		text, err := json.Marshal(map[string]string{"name": string(name)})
		if err != nil {
			t.Fatal(err)
		}
		done, err := h.exchange(h.prepare("updateKey", at(id), body(string(text))))
		if err != nil {
			t.Fatal(err)
		}
		if (done.invalid == nil) != (done.status == 200) {
			t.Errorf("%+q: answered %d, and by the document it is %v", string(name), done.status, done.invalid)
		}
		if done.status == 200 {
			taken++
		}
	}
	if taken < names/10 || taken > names*9/10 {
		t.Errorf("%d of %d were taken", taken, names)
	}
}
