// Package interop tests package signing against other implementations: the Standard Webhooks and
// Svix libraries for Go and for Node.js, node:crypto, and openssl. It also runs the receivers of
// docs/receivers.md. It is a separate module, so that hosts do not get these dependencies.
//
// The tests that need Node.js use the packages pinned in package-lock.json; run "npm ci" in this
// directory. Without them they fail if the environment variable CI is set, and are skipped
// otherwise.
package interop
