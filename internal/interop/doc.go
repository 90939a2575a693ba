// Package interop tests package signing against other implementations: the Standard Webhooks and Svix libraries for Go
// and for Node.js, node:crypto, and openssl. It also runs the receivers of docs/receivers.md. It is a module of its own
// so that hosts do not get these dependencies.
//
// The tests that need Node.js use the packages that package-lock.json pins; "npm ci" in this directory gets them. Where
// the environment variable CI is set they fail without; elsewhere they are skipped.
package interop
