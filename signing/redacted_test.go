package signing_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/signing"
)

func TestKeyring_Printed_IsRedacted(t *testing.T) {
	key := []byte("0123456789abcdefghijklmnopqrstuv")
	keyring := newKeyring(t, key)
	dataKey := signing.DataKeyOf(key)
	dataKey.Seal(secretA, "wh_1")
	var none *signing.Keyring
	type config struct {
		Keyring *signing.Keyring
		hidden  *signing.Keyring
		value   signing.Keyring
	}
	outputs := map[string]string{}
	for name, value := range map[string]any{
		"keyring": keyring, "nil": none, "value": *keyring,
		"data key": dataKey, "data key value": *dataKey, "nil data key": (*signing.DataKey)(nil),
		"config": config{keyring, keyring, *keyring}, "pointer": &config{keyring, keyring, *keyring},
	} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "% X", "%d"} {
			outputs[name+" "+verb] = fmt.Sprintf(verb, value)
		}
		var log bytes.Buffer
		slog.New(slog.NewTextHandler(&log, nil)).Info("m", "v", value)
		slog.New(slog.NewJSONHandler(&log, nil)).Info("m", "v", value)
		outputs[name+" slog"] = log.String()
		data, err := json.Marshal(value)
		outputs[name+" json"] = fmt.Sprint(string(data), err)
		data, err = xml.Marshal(value)
		outputs[name+" xml"] = fmt.Sprint(string(data), err)
	}
	outputs["String"] = keyring.String() + dataKey.String()
	outputs["cmp.Diff"] = cmp.Diff(config{Keyring: keyring}, config{Keyring: newKeyring(t, keyOf(1))},
		cmp.AllowUnexported(config{}, signing.Keyring{}))
	_, err := signing.NewKeyring(key, key)
	outputs["error"] = err.Error()
	_, err = signing.NewKeyring(key[:31])
	outputs["other error"] = err.Error()

	forbidden := []string{
		string(key[:8]), hex.EncodeToString(key[:8]), fmt.Sprintf("% X", key[:8]), fmt.Sprintf("%#v", key[:8])[7:20],
		strings.Trim(fmt.Sprint(key[:8]), "[]"), base64.StdEncoding.EncodeToString(key[:9]),
	}
	for name, output := range outputs {
		for _, f := range forbidden {
			if strings.Contains(output, f) {
				t.Errorf("%s shows the key", name)
			}
		}
		if strings.Contains(output, "panic") {
			t.Errorf("%s contains the key: %s", name, output)
		}
	}
	for _, name := range []string{
		"keyring %v", "keyring %+v", "keyring %#v", "keyring %x", "keyring slog", "keyring json", "keyring xml",
		"nil %v", "nil slog", "data key %v", "data key %#v", "data key slog", "data key json", "data key xml", "nil data key %v", "config json", "String",
	} {
		if !strings.Contains(outputs[name], "[redacted]") {
			t.Errorf("%s: %q, want [redacted] in it", name, outputs[name])
		}
	}
}
