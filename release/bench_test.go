package release_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A bench is a separate repository with settings that leave the user's own configuration untouched.
type bench struct {
	*testing.T
	dir, tree, origin string
}

// newBench returns a bench with an empty repository.
func newBench(t *testing.T) *bench {
	t.Helper()
	for _, tool := range []string{"git", "bash"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("there is no %s", tool)
		}
	}
	b := &bench{T: t, dir: t.TempDir()}
	b.tree, b.origin = filepath.Join(b.dir, "tree"), filepath.Join(b.dir, "origin.git")
	b.must(os.Mkdir(b.tree, 0o700))
	b.git("init", "-q", "-b", "main")
	return b
}

// copy copies the current state of this tree to the bench, and commits it.
func (b *bench) copy() {
	b.Helper()
	list, err := exec.Command("git", "-C", "..", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		b.Skipf("this tree is not a checkout: %v", err)
	}
	for file := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		from, to := filepath.Join("..", file), filepath.Join(b.tree, file)
		info, err := os.Stat(from)
		if err != nil {
			continue // deleted, and not yet committed
		}
		content, err := os.ReadFile(from)
		b.must(err)
		b.must(os.MkdirAll(filepath.Dir(to), 0o700))
		b.must(os.WriteFile(to, content, info.Mode()))
	}
	changelog, err := os.ReadFile(filepath.Join(b.tree, "CHANGELOG.md"))
	b.must(err)
	b.write("CHANGELOG.md", strings.Replace(string(changelog), "## Unreleased\n", "## Unreleased\n\n- There is something, also just after a release.\n", 1))
	b.commit("what is to be released")
}

// commit commits all changes.
func (b *bench) commit(message string) {
	b.Helper()
	b.git("add", "-A")
	b.git("commit", "-q", "-m", message)
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// write writes a file to the bench's tree.
func (b *bench) write(file, content string) {
	b.Helper()
	file = filepath.Join(b.tree, file)
	b.must(os.MkdirAll(filepath.Dir(file), 0o700))
	b.must(os.WriteFile(file, []byte(content), 0o600))
}

// environment returns the process's environment with the bench's own git settings.
func (b *bench) environment(more ...string) []string {
	b.Helper()
	config := filepath.Join(b.dir, "gitconfig")
	b.must(os.WriteFile(config, []byte("[user]\n\tname = Release\n\temail = release@example.com\n"+
		"[url \"file://"+b.origin+"\"]\n\tinsteadOf = https://"+root+"\n"), 0o600))
	env := append(os.Environ(), "GIT_CONFIG_GLOBAL="+config, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "GOWORK=off")
	return append(env, more...)
}

// git runs git in the tree.
func (b *bench) git(arguments ...string) string {
	b.Helper()
	command := exec.Command("git", arguments...)
	command.Dir, command.Env = b.tree, b.environment()
	out, err := command.CombinedOutput()
	if err != nil {
		b.Fatalf("git %s: %v\n%s", strings.Join(arguments, " "), err, out)
	}
	return string(out)
}

// state describes everything that a release may change: the refs, uncommitted files and worktrees.
func (b *bench) state() string {
	b.Helper()
	return b.git("show-ref") + b.git("status", "--porcelain") + b.git("worktree", "list")
}

// script runs a script in the directory release.
func (b *bench) script(name string, arguments ...string) (string, error) {
	b.Helper()
	command := exec.Command("bash", append([]string{"release/" + name}, arguments...)...)
	command.Dir, command.Env = b.tree, b.environment()
	out, err := command.CombinedOutput()
	return string(out), err
}

// release makes a signed release, without running CI, because CI runs this test.
func (b *bench) release(version string) string {
	b.Helper()
	out, err := b.script("make", "-checked", "-sign", version)
	if err != nil {
		b.Fatalf("release/make -checked -sign %s: %v\n%s", version, err, out)
	}
	return out
}

// refuses runs release/make, which must fail and print the reason.
func (b *bench) refuses(why string, arguments ...string) {
	b.Helper()
	out, err := b.script("make", arguments...)
	if err == nil || !strings.Contains(out, "release: ") || !strings.Contains(out, why) {
		b.Errorf("release/make %s: %v, says %q, want %q", strings.Join(arguments, " "), err, out, why)
	}
}

// tryOutside runs go in a directory as a user of the release does. The release comes from the bare
// repository, and all other modules from this machine's module cache or the module proxy. The bench
// has its own module cache.
func (b *bench) tryOutside(dir string, arguments ...string) (string, error) {
	b.Helper()
	settings, err := exec.Command("go", "env", "GOMODCACHE", "GOPROXY").Output()
	b.must(err)
	cache, proxies, _ := strings.Cut(strings.TrimSpace(string(settings)), "\n")
	command := exec.Command("go", arguments...)
	command.Dir = dir
	command.Env = b.environment(
		"GOPRIVATE="+root, "GOPROXY=file://"+filepath.ToSlash(cache)+"/cache/download,"+proxies, "GOSUMDB=off",
		"GOMODCACHE="+filepath.Join(b.dir, "modules"), "GOFLAGS=-modcacherw -buildvcs=false",
	)
	out, err := command.CombinedOutput()
	return string(out), err
}

func (b *bench) outside(dir string, arguments ...string) string {
	b.Helper()
	out, err := b.tryOutside(dir, arguments...)
	if err != nil {
		b.Fatalf("go %s: %v\n%s", strings.Join(arguments, " "), err, out)
	}
	return out
}
