package clients

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestGo generates a client with oapi-codegen, and runs the program in goclient with it.
func TestGo(t *testing.T) {
	h, dir := newHost(t), t.TempDir()
	generated := filepath.Join(dir, "api.gen.go")
	run(t, ".", "go", "tool", "oapi-codegen", "-config", filepath.Join("goclient", "oapi-codegen.yaml"), "-o", generated, h.document)

	here, err := filepath.Abs("goclient")
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(here, "api.gen.go"): generated}})
	if err != nil {
		t.Fatal(err)
	}
	file, program := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "goclient")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, ".", "go", "build", "-tags", "generated", "-overlay", file, "-o", program, "./goclient")
	run(t, ".", program, h.url, h.admin, h.narrow)
}

// TestTypeScript generates types with openapi-typescript, and runs the program in tsclient with
// them.
func TestTypeScript(t *testing.T) {
	modules, err := filepath.Abs("node_modules")
	if err == nil {
		_, err = os.Stat(filepath.Join(modules, ".bin", "openapi-typescript"))
	}
	if err == nil {
		_, err = exec.LookPath("node")
	}
	if err != nil {
		const message = "needs Node.js, and \"npm ci\" run in internal/clients: %v"
		if os.Getenv("CI") != "" {
			t.Fatalf(message, err)
		}
		t.Skipf(message, err)
	}
	h, dir := newHost(t), t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("tsclient")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"type":"module"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	tool := func(name string) string { return filepath.Join(modules, ".bin", name) }
	run(t, dir, tool("openapi-typescript"), h.document, "--output", "api.ts")
	run(t, dir, tool("tsc"), "--project", ".")
	run(t, dir, "node", filepath.Join("out", "main.js"), h.url, h.admin, h.narrow)
}
