// Package interop proves, in its tests, that what package signing makes is what others understand: the Standard Webhooks
// and Svix libraries for Go and for Node.js, node:crypto, and openssl. It runs the receivers of docs/events.md, too. It is
// a module of its own so that nobody who imports the library gets those.
//
// The tests that need Node.js use the packages that package-lock.json pins; "npm ci" in this directory gets them. Where
// the environment variable CI is set they fail without; elsewhere they are skipped.
package interop
