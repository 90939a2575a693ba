package dashboard

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"strings"
)

//go:embed assets
var assetFiles embed.FS

// An asset is a file that pages load. Its served name changes whenever its content changes, so that
// browsers can cache it.
type asset struct {
	mediaType string
	data      []byte
}

func (a asset) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
	w.Header().Set("Content-Type", a.mediaType)
	_, _ = w.Write(a.data) // the browser may have disconnected
}

// assets maps served names to assets, and assetNames maps file names to served names.
var assets, assetNames = loadAssets()

// mediaTypes does not rely on the system's media types, because those differ between hosts.
var mediaTypes = map[string]string{
	".css": "text/css; charset=utf-8",
	".js":  "text/javascript; charset=utf-8",
	".svg": "image/svg+xml",
}

func loadAssets() (map[string]asset, map[string]string) {
	entries, err := assetFiles.ReadDir("assets")
	if err != nil {
		panic(err) // impossible: the files are embedded
	}
	byName, names := make(map[string]asset), make(map[string]string)
	for _, entry := range entries {
		data, err := assetFiles.ReadFile("assets/" + entry.Name())
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(data)
		extension := path.Ext(entry.Name())
		name := strings.TrimSuffix(entry.Name(), extension) + "." + hex.EncodeToString(sum[:6]) + extension
		names[entry.Name()] = name
		byName[name] = asset{mediaTypes[extension], data}
	}
	return byName, names
}
