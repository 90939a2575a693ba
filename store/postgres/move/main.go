// Move copies everything from one store to another, compares both, and marks a source file as left
// so that it is not used again. Stop the host first; afterwards start it on the target store.
//
//	go run github.com/storageapi/storageapi/store/postgres/move -from storage.db -to postgres://app@localhost/storage
//	go run github.com/storageapi/storageapi/store/postgres/move -from postgres://app@localhost/storage -to back.db
//
// Put the password into PGPASSWORD: other users can see arguments.
//
// If Move is interrupted, run it again. It then continues from the position that it keeps in a
// file, see -position. It opens sealed secrets with the keys in SEALING_KEYS, and seals them under
// the first key in TO_SEALING_KEYS or, by default, SEALING_KEYS: base64, separated by commas.
package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/storageapi/storageapi/cli"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/postgres"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := cli.Run(ctx, append([]string{"move"}, os.Args[1:]...), cli.Config{OpenStore: opener()})
	stop()
	os.Exit(status)
}

// opener returns a function that opens the source and then the target.
func opener() func(ctx context.Context, place string) (store.Store, error) {
	keys := os.Getenv("SEALING_KEYS")
	return func(ctx context.Context, place string) (store.Store, error) {
		sealer, err := sealerOf(keys)
		if err != nil {
			return nil, err
		}
		keys = cmp.Or(os.Getenv("TO_SEALING_KEYS"), keys)
		if strings.Contains(place, "://") {
			return postgres.Open(ctx, place, postgres.Sealed(sealer))
		}
		return bolt.Open(place, bolt.Sealed(sealer))
	}
}

// sealerOf returns a Keyring with the listed keys, or nil if the list is empty.
func sealerOf(list string) (signing.Sealer, error) {
	if list == "" {
		return nil, nil
	}
	var keys [][]byte
	for text := range strings.SplitSeq(list, ",") {
		key, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, errors.New("SEALING_KEYS: must be base64, separated by commas")
		}
		keys = append(keys, key)
	}
	return signing.NewKeyring(keys...)
}
